"""The launcher's settings, read from the environment once. Pure: text in, values or refusals."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from launcher.cudagraphs import graphs
from launcher.options import flags, values
from launcher.options.values import BadValueError, Parser

Value = TypeVar("Value")
Device = Literal["cuda", "cpu"]

MIB = 2**20
# vLLM lets requests run on for this many seconds after the gateway has cut what was left.
OUTLIVE_S = 15


class SettingsError(Exception):
    """One or more bad variables; `lines` has one line for each, beginning with its name."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True)
class Variable(Generic[Value]):
    """How one variable is read. `default` counts when it is absent, empty or blank."""

    name: str
    parse: Parser[Value]
    default: Value


@dataclass(frozen=True)
class Settings:
    """All the launcher decides from. Sizes keep vLLM's own spelling (8192, 8k, 8K)."""

    device: Device
    model: str
    model_revision: str | None
    served_model_name: tuple[str, ...]
    tensor_parallel_size: int
    gpu_memory_utilization: float
    max_model_len: str | None
    max_num_seqs: int | None
    max_num_batched_tokens: str | None
    kv_cache_dtype: str | None
    quantization: str | None
    enable_prefix_caching: bool | None
    tool_call_parser: str | None
    reasoning_parser: str | None
    api_server_count: int | None  # None: auto, see launcher.apiservers
    require_cuda_graphs: bool
    compilation_config: dict[str, object] | None
    extra_args: tuple[str, ...]
    debug: bool  # eager, every kernel waited for, verbose: for this start alone
    host: str
    port: int
    status_port: int
    drain_s: int  # vLLM's: the gateway's and OUTLIVE_S
    models_dir: Path


def _device(text: str) -> Device:
    if text == "cuda":
        return "cuda"
    if text == "cpu":
        return "cpu"
    raise values.refuse(text, "cuda or cpu", "leave it to the compose files")


def _tensor_parallel(text: str) -> int:
    if text in ("all", "-1"):
        raise values.refuse(
            text, "the number of GPUs one engine spans",
            "count them with nvidia-smi -L and write the number: Compose reserves exactly as many",
        )  # fmt: skip
    if text == "0":
        raise values.refuse(text, "at least 1", "write 1, or use STACK_MODE=cpu for no GPU at all")
    return values.whole_number(1, 1024, fix="write how many GPUs one engine spans, for example 1")(
        text
    )


def _api_servers(text: str) -> int | None:
    if text.lower() == "auto":
        return None
    return values.whole_number(1, 256, fix="write for example 4, or auto")(text)


def _extra_args(text: str) -> tuple[str, ...]:
    split = values.arguments(text)
    flags.check(split)
    return split


def _absolute(text: str) -> Path:
    if text.startswith("/") and text.isprintable():
        return Path(text)
    raise values.refuse(text, "an absolute path", "leave it to the compose files")


def _host(text: str) -> str:
    if text.isascii() and text.isprintable() and " " not in text and not text.startswith("-"):
        return text
    raise values.refuse(text, "an address to listen on", "leave it to the compose files")


class _Reader:
    """Reads variables one by one and collects the refusals."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.refusals: list[str] = []

    def read(self, variable: Variable[Value]) -> Value:
        text = self._environ.get(variable.name, "").strip()
        if not text:
            return variable.default
        try:
            return variable.parse(text)
        except BadValueError as error:
            self.refusals.append(f"{variable.name}: {error}")
            return variable.default

    def optional(self, name: str, parse: Parser[Value]) -> Value | None:
        return self.read(Variable[Value | None](name, parse, None))


def load(environ: Mapping[str, str]) -> Settings:
    """Settings from `environ`. Raises SettingsError with a line for every bad variable."""
    reader = _Reader(environ)
    read, optional = reader.read, reader.optional
    port = values.whole_number(1, 65535, fix="leave it to the compose files")
    device: Device = read(Variable("ENGINE_DEVICE", _device, "cuda"))
    debug = read(Variable("ENGINE_DEBUG", values.flag, False))
    required = read(Variable("REQUIRE_CUDA_GRAPHS", values.flag, device == "cuda"))
    settings = Settings(
        device=device,
        model=read(Variable("MODEL", values.model, "auto")),
        model_revision=optional("MODEL_REVISION", values.revision),
        served_model_name=read(Variable("SERVED_MODEL_NAME", values.names, ())),
        tensor_parallel_size=read(Variable("TENSOR_PARALLEL_SIZE", _tensor_parallel, 1)),
        # vLLM's own default is 0.92; 0.90 leaves room for what runs beside it on a full card.
        gpu_memory_utilization=read(Variable("GPU_MEMORY_UTILIZATION", values.fraction, 0.90)),
        max_model_len=optional("MAX_MODEL_LEN", values.size_or_auto),
        max_num_seqs=optional(
            "MAX_NUM_SEQS", values.whole_number(1, 65536, fix="write for example 256")
        ),
        max_num_batched_tokens=optional("MAX_NUM_BATCHED_TOKENS", values.size),
        kv_cache_dtype=optional("KV_CACHE_DTYPE", values.word("a data type", "fp8")),
        quantization=optional("QUANTIZATION", values.word("a method", "awq")),
        enable_prefix_caching=optional("ENABLE_PREFIX_CACHING", values.flag),
        tool_call_parser=optional("TOOL_CALL_PARSER", values.word("a parser's name", "hermes")),
        reasoning_parser=optional("REASONING_PARSER", values.word("a parser's name", "qwen3")),
        api_server_count=optional("API_SERVER_COUNT", _api_servers),
        require_cuda_graphs=required and not debug,
        compilation_config=optional("COMPILATION_CONFIG", values.compilation_config),
        extra_args=read(Variable("VLLM_EXTRA_ARGS", _extra_args, ())),
        debug=debug,
        host=read(Variable("ENGINE_HOST", _host, "0.0.0.0")),  # noqa: S104 - inside a container
        port=read(Variable("ENGINE_PORT", port, 8000)),
        status_port=read(Variable("ENGINE_STATUS_PORT", port, 8001)),
        drain_s=read(Variable("ENGINE_DRAIN_S", values.whole_seconds(3600), 60)) + OUTLIVE_S,
        models_dir=read(Variable("ENGINE_MODELS_DIR", _absolute, Path("/cache/huggingface/stack"))),
    )
    refusals = [*reader.refusals, *_together(settings, environ)]
    if refusals:
        raise SettingsError(refusals)
    return settings


def _together(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Refusals of values that are good alone and bad together."""
    if settings.device != "cuda" or not settings.require_cuda_graphs:
        return []
    found = graphs.ruled_out(settings.compilation_config, settings.extra_args, environ)
    return [graphs.refusal(finding) for finding in found]
