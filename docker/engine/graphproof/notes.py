"""What vLLM's processes log about graphs that they take away, kept in a file for each process.

Most of it is decided by the configuration, so the API process says it and no worker does.
"""

import functools
import logging
import os
from pathlib import Path

from graphproof import downgrades

PATTERN = "notes-*.txt"
MOST = 20  # lines that are kept of one process, and of all


class Listener:
    """A factory of log records around the one before it: vLLM configures its loggers anew in each
    process, which takes handlers away, and leaves the factory. A line is written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._make = logging.getLogRecordFactory()
        self._seen: set[str] = set()

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        if record.name.startswith("vllm") and record.levelno >= logging.INFO:
            self._keep(record)
        return record

    def _keep(self, record: logging.LogRecord) -> None:
        try:
            found = downgrades.of(record.getMessage())
            if found and found.line not in self._seen and len(self._seen) < MOST:
                self._seen.add(found.line)
                # By the process of now: a forked child has its parent's factory.
                with (self._folder / f"notes-{os.getpid()}.txt").open("a") as file:
                    file.write(found.line + "\n")
        except (OSError, TypeError, ValueError):
            # A full disk, or a record whose parts don't fit (its handler tells). A reason is lost,
            # the verdict isn't; and logging about it here would come back here.
            return


@functools.cache
def listen(folder: Path) -> None:
    """From now on, in this process and those forked from it; once."""
    logging.setLogRecordFactory(Listener(folder))


def read_all(folder: Path) -> tuple[str, ...]:
    """The lines of all processes, each once, first processes first. Raises OSError."""
    files = sorted(folder.glob(PATTERN), key=lambda path: path.stat().st_mtime_ns)
    lines = [line for path in files for line in path.read_text(errors="replace").splitlines()]
    return tuple(dict.fromkeys(lines))[:MOST]
