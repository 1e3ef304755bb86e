"""Settings that rule CUDA graphs out, and what may be said about graphs so far. Pure.

Only the settings are judged here, before vLLM starts. Whether the workers really replay graphs is
not proven by this file: the verdict stays `unknown` until something inside the workers reports.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from launcher.flags import Flag, is_given

Verdict = Literal["in force", "partly", "eager", "unknown"]
OFF_WORDS = ("none", "0", '"none"')
ENVIRONMENT = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")


@dataclass(frozen=True)
class Graphs:
    """What is known about CUDA graphs, with its reason (one line)."""

    verdict: Verdict
    reason: str


NOT_ON_CPU = Graphs("eager", "the CPU backend has no CUDA graphs")
NOT_PROVEN = Graphs("unknown", "no report from inside the workers")


def ruled_out(
    config: Mapping[str, object] | None, flags: list[Flag], environ: Mapping[str, str]
) -> str | None:
    """Why these settings leave no CUDA graph (`VARIABLE: found …`), or None.

    Modes and what follows from them: vLLM's config/vllm.py and config/compilation.py, 0.24 to 0.33.
    """
    return _by_config(config or {}) or _by_flags(flags) or _by_environment(environ)


def _by_config(config: Mapping[str, object]) -> str | None:
    for key in ("mode", "cudagraph_mode"):
        value = config.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and _is_off(str(value)):
            return f"COMPILATION_CONFIG: found {key} {value!r}"
    return None


def _is_off(value: str) -> bool:
    return value.strip().strip("\"'").lower() in OFF_WORDS


def _by_flags(flags: list[Flag]) -> str | None:
    eager = [f for f in flags if is_given([f], "enforce-eager")]
    if eager and not eager[-1].negated:  # the last one counts
        return "VLLM_EXTRA_ARGS: found --enforce-eager"
    levels = [f for f in flags if is_given([f], "optimization-level")]
    if levels and (levels[-1].value or "").strip() == "0":
        return "VLLM_EXTRA_ARGS: found optimization level 0 (-O0)"
    return None


def _by_environment(environ: Mapping[str, str]) -> str | None:
    for name in ENVIRONMENT:
        if environ.get(name, "").strip().lower() not in ("", "0", "false"):
            return f"{name}: found {environ[name].strip()!r}"
    return None
