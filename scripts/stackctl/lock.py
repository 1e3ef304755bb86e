"""One changing verb at a time in a checkout."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from stackctl.errors import problem
from stackctl.layout import Layout


@contextmanager
def exclusive(layout: Layout) -> Iterator[None]:
    """Hold .run/lock or say who does. The kernel lets go of it when we end, however we end."""
    with _opened(layout, "lock") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "?"
            raise problem(
                f"another scripts/stack at work in this folder (pid {owner})",
                "one at a time",
                "wait for it, or interrupt it",
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield


@contextmanager
def exclusive_keys(layout: Layout) -> Iterator[None]:
    """Wait for one's turn to change the keys: that takes milliseconds, also while `up` works."""
    with _opened(layout, "keys.lock") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(layout: Layout, name: str) -> Iterator[int]:
    layout.run.mkdir(exist_ok=True)
    handle = os.open(layout.run / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)
