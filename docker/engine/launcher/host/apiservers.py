"""API_SERVER_COUNT=auto: how many of vLLM's API servers take requests in front of the engine.

Measured on one H200 with 16 cores (docs/benchmarks.md): at 256 streams four servers gave 12,334
tokens/s where one gave 9,879. More than four were not tried, so auto does not take more.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from launcher.options import flags
from launcher.options.settings import Settings

# Least cores → servers. Each takes about one core, and the engine, the gateway and nginx need some.
BY_CORES = ((16, 4), (8, 2), (0, 1))
# With these vLLM chooses by itself (a server for each data-parallel engine), or has none here.
NOT_OURS = ("data-parallel-size", "data-parallel-rank", "headless", "nnodes")
SHORT = ("-dp", "-dpn", "-n")
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def resolved(settings: Settings, environ: Mapping[str, str], has_command: bool) -> Settings:
    """The settings with a number where API_SERVER_COUNT leaves it open. has_command: this build of
    vLLM has the command that runs several."""
    if settings.api_server_count is not None or _is_vllms(settings):
        return settings
    one = settings.device == "cpu" or not has_command or _loads_adapters(environ)
    return replace(settings, api_server_count=1 if one else choose(cores()))


def _is_vllms(settings: Settings) -> bool:
    given = flags.read(settings.extra_args)
    named = any(flags.is_given(given, name) for name in NOT_OURS)
    return named or any(flag.written in SHORT for flag in given)


def _loads_adapters(environ: Mapping[str, str]) -> bool:
    """At run time, which vLLM allows with one server alone."""
    text = environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "").strip().lower()
    return text in ("1", "true")


def choose(available: int) -> int:
    """Servers for so many cores."""
    return next(servers for least, servers in BY_CORES if available >= least)


def cores(limit: Path = CPU_MAX) -> int:
    """Those this process may use: its affinity, or less by the container's quota."""
    own = len(os.sched_getaffinity(0))
    try:
        quota, _, period = limit.read_text(encoding="ascii").strip().partition(" ")
    except OSError:
        return own
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return own
    return max(1, min(own, int(quota) // int(period)))
