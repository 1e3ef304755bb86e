"""Processes that a run started, found by a mark in their environment (Linux), so that none is left
on a host that others use."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "STACK_PROVE_RUN"
GRACE_S = 5.0


def alive(mark: str) -> list[int]:
    """Ids of this user's processes that carry the mark, this one left out."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        # One that has ended, but was not waited for, has no environment.
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def gone(mark: str, grace_s: float = GRACE_S) -> list[int]:
    """Wait until none is left; ids of those that had to be killed."""
    end = time.monotonic() + grace_s
    while left := alive(mark):
        if time.monotonic() > end:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return left
        time.sleep(0.2)
    return []
