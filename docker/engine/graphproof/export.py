"""Counters of the workers → increments for whoever exports them, each exactly once.

vLLM may have several API processes, and any of them may be idle or end. So each of them exports
what nobody exported yet: what was, stands in a file that all of them share under a lock.
"""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from graphproof import counts

NAME = "exported"  # 13 numbers like a worker's, but read and written under a lock


class Exporter:
    """For one process. Raises OSError and ValueError where the files cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._views = [counts.view(path) for path in counts.engines(folder)]
        self._known = (0,) * counts.LENGTH
        with contextlib.ExitStack() as stack:
            self._file = stack.enter_context((folder / NAME).open("a+b"))
            self._file.truncate(counts.BYTES)  # zeros where it is new
            self._taken = counts.mapped(self._file.fileno())
            stack.pop_all()  # it stays open, as long as this does

    def take(self) -> list[tuple[str, str, int, int]]:
        """(kind, mode, steps, tokens) that nobody took before; empty where there are none."""
        if counts.total(self._views) == self._known:
            return []
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            before, self._known = tuple(self._taken), counts.total(self._views)
            for place, number in enumerate(self._known):
                self._taken[place] = number
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return [row for row in _rows(before, self._known) if row[2] > 0]

    def close(self) -> None:
        self._file.close()


def _rows(before: tuple[int, ...], now: tuple[int, ...]) -> Iterator[tuple[str, str, int, int]]:
    grown = [new - old for old, new in zip(before, now, strict=True)]
    places = [(kind, mode) for kind in counts.KINDS for mode in counts.MODES]
    for place, (kind, mode) in enumerate(places):
        yield kind, mode, grown[place], grown[place + counts.TOKENS_AT]
