"""Settings → vLLM's arguments and environment, and what VLLM_EXTRA_ARGS may not hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launcher.model import manifest
from launcher.options import argv, flags
from launcher.options.settings import SettingsError, load

ROOT = Path(__file__).resolve().parents[3]


def arguments(**environ: str) -> list[str]:
    return argv.arguments(load(environ), "/models/m", "acme/m")


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_a_gpu_by_default() -> None:
    assert arguments(MODEL="acme/m") == [
        "--model", "/models/m", "--served-model-name", "acme/m", "default",
        "--host", "0.0.0.0", "--port", "8000", "--tensor-parallel-size", "1",
        "--gpu-memory-utilization", "0.9", "--shutdown-timeout", "75",
        "--disable-uvicorn-access-log",
    ]  # fmt: skip


def test_a_cpu_by_default() -> None:
    words = arguments(ENGINE_DEVICE="cpu")
    assert after(words, "--dtype") == "bfloat16"
    assert after(words, "--kv-cache-memory-bytes") == str(2**30)
    assert "--enforce-eager" in words
    assert "--gpu-memory-utilization" not in words
    assert "--max-model-len" not in words


def test_a_cpu_compiles_when_asked_to() -> None:
    for environ in ({"COMPILATION_CONFIG": "3"}, {"VLLM_EXTRA_ARGS": "-O2"}):
        assert "--enforce-eager" not in arguments(ENGINE_DEVICE="cpu", **environ)


@pytest.mark.parametrize(
    ("extra", "flag"),
    [
        ("--kv-cache-memory-bytes 2G", "--kv-cache-memory-bytes"),
        ("--kv_cache_memory_bytes=2G", "--kv-cache-memory-bytes"),
        ("--dtype float32", "--dtype"),
        ("--no-enforce-eager", "--enforce-eager"),
        ("--no-disable-uvicorn-access-log", "--disable-uvicorn-access-log"),
    ],
)
def test_a_default_gives_way(extra: str, flag: str) -> None:
    words = arguments(ENGINE_DEVICE="cpu", VLLM_EXTRA_ARGS=extra)
    own = words[: -len(extra.split())]
    assert flag not in own


def test_auto_on_a_gpu_takes_the_context_that_fits() -> None:
    assert after(arguments(), "--max-model-len") == "auto"
    assert after(arguments(MAX_MODEL_LEN="4k"), "--max-model-len") == "4k"
    assert "--max-model-len" not in arguments(MODEL="acme/m")


def test_everything_set() -> None:
    words = arguments(
        SERVED_MODEL_NAME="mine",
        TENSOR_PARALLEL_SIZE="2",
        MAX_MODEL_LEN="8K",
        MAX_NUM_SEQS="64",
        MAX_NUM_BATCHED_TOKENS="4k",
        KV_CACHE_DTYPE="fp8",
        QUANTIZATION="awq",
        ENABLE_PREFIX_CACHING="false",
        TOOL_CALL_PARSER="hermes",
        REASONING_PARSER="qwen3",
        API_SERVER_COUNT="4",
        COMPILATION_CONFIG='{"cudagraph_mode": "FULL", "x": "a b"}',
        VLLM_EXTRA_ARGS="--seed 1 --chat-template 'a b'",
    )
    assert words[words.index("--served-model-name") :][1:3] == ["mine", "default"]
    assert json.loads(after(words, "--compilation-config")) == {
        "cudagraph_mode": "FULL",
        "x": "a b",
    }
    assert "--no-enable-prefix-caching" in words
    assert "--enable-auto-tool-choice" in words
    assert words[-4:] == ["--seed", "1", "--chat-template", "a b"]
    flags = [word for word in words if word.startswith("--")]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"ENGINE_DEVICE": "cpu"},
        {"ENGINE_DEVICE": "cpu", "COMPILATION_CONFIG": "3"},
        {"VLLM_EXTRA_ARGS": "--no-enforce-eager"},
        {"VLLM_EXTRA_ARGS": "--enforce-eager"},
        {"VLLM_EXTRA_ARGS": "--enf --seed 1"},
    ],
)
def test_debug_mode_is_eager_whatever_else_is_set(environ: dict[str, str]) -> None:
    words = arguments(ENGINE_DEBUG="1", **environ)
    eager = [flag for flag in flags.read(tuple(words)) if flags.is_given([flag], "enforce-eager")]
    assert not eager[-1].negated
    assert len([flag for flag in eager if not flag.negated]) == 1


def test_debug_mode_makes_vllm_wait_and_talk() -> None:
    plain = argv.environment(load({}), {})
    assert not plain.keys() & argv.DEBUG_ENVIRONMENT.keys()
    debug = argv.environment(load({"ENGINE_DEBUG": "1"}), {"CUDA_LAUNCH_BLOCKING": "0"})
    assert (debug["CUDA_LAUNCH_BLOCKING"], debug["VLLM_LOGGING_LEVEL"]) == ("1", "DEBUG")


def test_default_is_named_once() -> None:
    assert argv.served_names(load({"SERVED_MODEL_NAME": "default"}), "m") == ("default",)


REFUSED = [
    ("--tensor-parallel-size 2", "TENSOR_PARALLEL_SIZE"),
    ("--tensor-parallel-size=2", "TENSOR_PARALLEL_SIZE"),
    ("--tensor_parallel_size 2", "TENSOR_PARALLEL_SIZE"),
    ("--tensor-par 2", "TENSOR_PARALLEL_SIZE"),
    ("-tp 2", "TENSOR_PARALLEL_SIZE"),
    ("-tp=2", "TENSOR_PARALLEL_SIZE"),
    ("-t 2", "TENSOR_PARALLEL_SIZE"),
    ("-q awq", "QUANTIZATION"),
    ("-qawq", "QUANTIZATION"),
    ("-cc.mode=0", "COMPILATION_CONFIG"),
    ("-cc.cudagraph_mode=NONE", "COMPILATION_CONFIG"),
    ("-cc '{}'", "COMPILATION_CONFIG"),
    ("--compilation-config.mode 0", "COMPILATION_CONFIG"),
    ("--compilation_config={}", "COMPILATION_CONFIG"),
    ("-asc 2", "API_SERVER_COUNT"),
    ("--no-enable-prefix-caching", "ENABLE_PREFIX_CACHING"),
    ("--no_enable_prefix_caching", "ENABLE_PREFIX_CACHING"),
    ("--device-memory-utilization 1", "GPU_MEMORY_UTILIZATION"),
    ("--model x", "MODEL"),
    ("--served-model-name x", "SERVED_MODEL_NAME"),
    ("--revision x", "MODEL_REVISION"),
    ("--seed 1 --max-model-len=1", "MAX_MODEL_LEN"),
    ("--host ::", "gateway"),
    ("--ho 0", "gateway"),
    ("--port 1", "gateway"),
    ("--uds /x", "TCP"),
    ("--shutdown-timeout 1", "drain"),
    ("--ssl-keyfile x", "nginx"),
    ("--api-key sk-secret", "secret"),
    ("--api_key=sk-secret", "secret"),
    ("--api sk-secret", "secret"),
    ("--hf-token hf_secret", "secret"),
    ("--seed 1 -- x", "dashes"),
]


@pytest.mark.parametrize(("text", "word"), REFUSED)
def test_extra_arguments_that_are_refused(text: str, word: str) -> None:
    with pytest.raises(SettingsError) as error:
        load({"VLLM_EXTRA_ARGS": text})
    (line,) = error.value.lines
    assert line.startswith("VLLM_EXTRA_ARGS: found -")
    assert word in line
    assert "sk-secret" not in line
    assert "hf_secret" not in line


@pytest.mark.parametrize(
    "text",
    [
        "--tokenizer x", "--quantization-config x", "--max-num-queued-reqs 5", "-pp 2", "-sc '{}'",
        "--enable-prompt-tokens-details", "--config /x.yaml", "--chat-template '--model x'",
        "--hf-overrides.rope_scaling.factor 2", "--reasoning-parser-plugin x", "--seed=-1",
        "-r 1", "-n 2",
    ],
)  # fmt: skip
def test_extra_arguments_that_are_taken(text: str) -> None:
    load({"VLLM_EXTRA_ARGS": text})


def test_the_two_ways_to_start_vllm() -> None:
    words = ["--model", "/m", "--port", "1"]
    assert argv.command("py", has_vllm_command=True, vllm_arguments=words) == [
        "py", "-m", "vllm.entrypoints.cli.main", "serve", "/m", "--port", "1",
    ]  # fmt: skip
    assert argv.command("py", has_vllm_command=False, vllm_arguments=words) == [
        "py", "-m", "vllm.entrypoints.openai.api_server", *words,
    ]  # fmt: skip


def test_the_environment_of_vllm() -> None:
    made = argv.environment(
        load({"ENGINE_DEVICE": "cpu"}),
        {
            "HF_TOKEN": "hf_x",
            "HUGGING_FACE_HUB_TOKEN": "hf_x",
            "HF_TOKEN_PATH": "/run/secrets/hf_token",
            "VLLM_EXTRA_ARGS": "",
            "VLLM_LOGGING_LEVEL": " ",
            "CUDA_VISIBLE_DEVICES": "",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "99",
            "HF_HUB_OFFLINE": "0",
            "PATH": "/bin",
        },
    )
    assert "hf_x" not in made.values()
    assert made == {
        "PATH": "/bin",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "99",
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def launcher(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launcher", *words],
        env={"PYTHONPATH": str(ROOT / "docker/engine"), **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_print_argv_needs_nothing(tmp_path: Path) -> None:
    done = launcher("--print-argv", MODEL="acme/m")
    assert done.returncode == 0
    assert json.loads(done.stdout)[:5] == [
        "--model",
        "acme/m",
        "--served-model-name",
        "acme/m",
        "default",
    ]
    manifest.write(tmp_path, manifest.Manifest("auto", "", "Tiny", "/models/tiny", None))
    done = launcher("--print-argv", ENGINE_MODELS_DIR=str(tmp_path), ENGINE_DEVICE="cpu")
    assert json.loads(done.stdout)[:4] == ["--model", "/models/tiny", "--served-model-name", "Tiny"]


def test_print_argv_judges() -> None:
    done = launcher("--print-argv", TENSOR_PARALLEL_SIZE="two", MAX_NUM_SEQS="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        "TENSOR_PARALLEL_SIZE", "MAX_NUM_SEQS",
    ]  # fmt: skip
    assert launcher("--nonsense").returncode == 2


def test_a_model_that_was_not_fetched(tmp_path: Path) -> None:
    done = launcher(ENGINE_MODELS_DIR=str(tmp_path), MODEL="acme/m")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("MODEL: found no ")
    manifest.write(tmp_path, manifest.Manifest("acme/other", "", "x", str(tmp_path), None))
    done = launcher(ENGINE_MODELS_DIR=str(tmp_path), MODEL="acme/m", MODEL_REVISION="v2")
    assert "found acme/other fetched; wanted acme/m at v2" in done.stderr
