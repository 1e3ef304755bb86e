"""The host's GPUs as nvidia-smi tells them."""

from __future__ import annotations

import subprocess
import time

SPARE_MIB = 512  # what a driver may keep after a process has gone
FREED_S = 15.0


def said(*words: str) -> list[str]:
    """Lines of nvidia-smi; none where there is no such program or it fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, timeout=60, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def memory_used() -> list[int]:
    """MiB in use on each GPU."""
    lines = said("--query-gpu=memory.used", "--format=csv,noheader,nounits")
    return [int(line) for line in lines if line.strip().isdecimal()]


def freed(before: list[int], wait_s: float = FREED_S) -> list[int]:
    """MiB in use, once it is what it was before, or the wait is over."""
    end = time.monotonic() + wait_s
    while still_used(before, now := memory_used()) and time.monotonic() < end:
        time.sleep(1)
    return now


def still_used(before: list[int], after: list[int]) -> bool:
    return any(now > was + SPARE_MIB for was, now in zip(before, after, strict=False))
