"""The folder into which vLLM's workers write what they captured: one for each start.

A lock on the folder tells a running launcher's from one that a killed launcher left behind; it
holds across containers, where every launcher has the same process id.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

PREFIX = "engine-proof-"


def choose(environ: Mapping[str, str]) -> Path:
    """A name below TMPDIR that nothing has yet."""
    parent = environ.get("TMPDIR", "").strip() or tempfile.gettempdir()
    return Path(parent).absolute() / f"{PREFIX}{secrets.token_hex(8)}"


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make `folder` for the time of the block; what killed launchers left beside it goes. Raises
    OSError where it can't be made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    folder.mkdir(mode=0o700)
    held = _locked(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _locked(folder: Path) -> int:
    """An open folder that nobody else holds. Raises OSError where somebody does."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def _sweep(parent: Path) -> None:
    for stale in parent.glob(f"{PREFIX}*"):
        # Held, another user's, or gone already: not ours to remove.
        with contextlib.suppress(OSError):
            held = _locked(stale)
            shutil.rmtree(stale, ignore_errors=True)
            os.close(held)
