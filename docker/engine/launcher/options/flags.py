"""Which flags of VLLM_EXTRA_ARGS are refused, by any spelling vLLM takes. Pure.

vLLM's parser turns underscores into dashes, takes --flag=value, --flag.key=value (JSON by parts),
--no-flag, single-dash aliases and, being argparse, any unambiguous beginning of a long name. So a
name is compared after the same steps, and a beginning of a refused name is refused too.
"""

import re
from dataclasses import dataclass

from launcher.options.values import BadValueError

# What the launcher sets → the variable that is for it. Names as vLLM 0.24 to 0.33 know them.
SET_BY_VARIABLE = {
    "model": "MODEL",
    "model-tag": "MODEL",
    "revision": "MODEL_REVISION",
    "served-model-name": "SERVED_MODEL_NAME",
    "tensor-parallel-size": "TENSOR_PARALLEL_SIZE",
    "gpu-memory-utilization": "GPU_MEMORY_UTILIZATION",
    "device-memory-utilization": "GPU_MEMORY_UTILIZATION",
    "max-model-len": "MAX_MODEL_LEN",
    "max-num-seqs": "MAX_NUM_SEQS",
    "max-num-batched-tokens": "MAX_NUM_BATCHED_TOKENS",
    "kv-cache-dtype": "KV_CACHE_DTYPE",
    "quantization": "QUANTIZATION",
    "enable-prefix-caching": "ENABLE_PREFIX_CACHING",
    "enable-auto-tool-choice": "TOOL_CALL_PARSER",
    "tool-call-parser": "TOOL_CALL_PARSER",
    "reasoning-parser": "REASONING_PARSER",
    "api-server-count": "API_SERVER_COUNT",
    "compilation-config": "COMPILATION_CONFIG",
}
SECRETS = ("api-key", "hf-token")
FIXED = {
    "host": "the gateway reaches vLLM where the stack puts it",
    "port": "the gateway reaches vLLM where the stack puts it",
    "uds": "the gateway reaches vLLM over TCP",
    "ssl-keyfile": "TLS ends at nginx",
    "ssl-certfile": "TLS ends at nginx",
    "shutdown-timeout": "the drain time is the stack's, see docs/limits.md",
}
ALIASES = {
    "-tp": "tensor-parallel-size",
    "-q": "quantization",
    "-asc": "api-server-count",
    "-cc": "compilation-config",
}


@dataclass(frozen=True)
class Flag:
    """One flag as vLLM will understand it: its long name without dashes (or the alias's)."""

    written: str
    name: str
    key: str  # what follows a dot: cudagraph_mode in -cc.cudagraph_mode
    value: str | None  # after `=`, or the next word where that is no flag
    negated: bool


def read(arguments: tuple[str, ...]) -> list[Flag]:
    """The flags among `arguments`, in order."""
    found = []
    for here, text in enumerate(arguments):
        if _is_flag(text):
            following = arguments[here + 1] if here + 1 < len(arguments) else None
            found.append(_flag(text, None if following and _is_flag(following) else following))
    return found


def _is_flag(text: str) -> bool:
    return bool(re.match(r"--?[A-Za-z]", text)) or text == "--"


def _flag(text: str, following: str | None) -> Flag:
    written, equals, after = text.partition("=")
    head, _, key = written.partition(".")
    name, value = _long_name(head)
    negated = name.startswith("no-")
    return Flag(
        written=written,
        name=name.removeprefix("no-"),
        key=key,
        value=after if equals else value if value is not None else following,
        negated=negated,
    )


def _long_name(head: str) -> tuple[str, str | None]:
    """Long name of a flag's head, and the value glued to a short one (-O0, -qawq)."""
    if head.startswith("--"):
        return head[2:].replace("_", "-"), None
    if head.startswith("-O"):
        return "optimization-level", head[2:] or None
    if head in ALIASES:
        return ALIASES[head], None
    if head.startswith("-q"):
        return "quantization", head[2:]
    beginnings = [alias for alias in ALIASES if alias.startswith(head)]
    # Else with its dash kept: a short flag abbreviates no long one.
    return (ALIASES[beginnings[0]], None) if len(beginnings) == 1 else (head, None)


def is_given(flags: list[Flag], name: str) -> bool:
    """Whether `name` is among `flags`, in full or as a beginning of it that argparse completes."""
    return any(_means(flag, name) for flag in flags)


def _means(flag: Flag, name: str) -> bool:
    # No flag of vLLM 0.24 to 0.33 is itself the beginning of a name listed here (tests/engine
    # checks that against the real parser), so a beginning can only be meant as an abbreviation.
    return name.startswith(flag.name)


def check(arguments: tuple[str, ...]) -> None:
    """Raises BadValueError for what VLLM_EXTRA_ARGS may not hold; never shows a flag's value."""
    if arguments and not _is_flag(arguments[0]):
        raise BadValueError(
            f"found {arguments[0]!r} first; wanted flags such as --seed 1; fix: the model goes into"
            " MODEL, everything else begins with a dash"
        )
    for flag in read(arguments):
        refusal = _refusal(flag)
        if refusal:
            raise BadValueError(f"found {flag.written}; {refusal}")


def _refusal(flag: Flag) -> str | None:
    if flag.written == "--":
        return "wanted flags only; fix: leave the lone dashes out"
    for name in SECRETS:
        if _means(flag, name):
            return (
                "wanted no secret on a command line, which every process may read;"
                " fix: clients' keys belong to secrets/gateway, the hub's token to secrets/hf_token"
            )
    for name, reason in FIXED.items():
        if _means(flag, name):
            return f"wanted it left alone ({reason}); fix: take it out"
    for name, variable in SET_BY_VARIABLE.items():
        if _means(flag, name):
            return f"wanted {variable} for that; fix: set {variable} and take the flag out"
    return None
