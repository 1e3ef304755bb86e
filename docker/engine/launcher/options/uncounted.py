"""Flags of VLLM_EXTRA_ARGS that change what `fit` counts. Pure."""

from launcher.options import flags
from launcher.options.flags import Flag

# Some of the weights are elsewhere, or are others.
WEIGHTS = (
    "pipeline-parallel-size", "cpu-offload-gb", "cpu-offload-params", "offload-group-size",
    "offload-backend", "offload-params", "hf-overrides", "config",
)  # fmt: skip
# The KV cache has a size of its own, or holds something else.
CACHE = (
    "kv-cache-memory-bytes", "num-gpu-blocks-override", "block-size", "speculative-config",
    "disable-hybrid-kv-cache-manager", "enable-lora", "kv-transfer-config", "kv-offloading-size",
    "decode-context-parallel-size", "enable-expert-parallel",
)  # fmt: skip
ALIASES = {
    "-pp": "pipeline-parallel-size", "-sc": "speculative-config",
    "-dcp": "decode-context-parallel-size", "-ep": "enable-expert-parallel",
}  # fmt: skip
USUAL_TYPES = ("auto", "bfloat16", "float16", "half")


def of_weights(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the flags by which the weights on a GPU are not what the model's files say."""
    return tuple(name for flag in flags.read(arguments) if (name := _named(flag, WEIGHTS)))


def any_of(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Names of all flags that change the answer."""
    return tuple(
        name for flag in flags.read(arguments) if (name := _named(flag, WEIGHTS + CACHE, all_=True))
    )


def _named(flag: Flag, names: tuple[str, ...], *, all_: bool = False) -> str | None:
    if flag.name in ALIASES and ALIASES[flag.name] in names:
        return ALIASES[flag.name]
    found = next((name for name in names if flags.is_given([flag], name)), None)
    if found is None and all_ and flags.is_given([flag], "dtype"):
        return None if flag.value in USUAL_TYPES else "dtype"
    return found
