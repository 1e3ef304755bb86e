"""Which steps ran in a CUDA graph: 13 unsigned 64-bit numbers per worker in a mapped file.

The worker alone writes, with plain stores (no lock, no call into the system); readers see each
number whole, and two numbers at most one step apart.
"""

import mmap
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

KINDS = ("decode", "prefill")
MODES = ("FULL", "PIECEWISE", "NONE")
TOKENS_AT = len(KINDS) * len(MODES)  # steps come first, by kind and within it by mode
LARGEST_AT = 2 * TOKENS_AT
LENGTH = LARGEST_AT + 1
BYTES = 8 * LENGTH
NAME = re.compile(r"worker-dp(\d+)-rank(\d+)\.counts")
Table = dict[str, dict[str, int]]


def _zeros() -> Table:
    return {kind: dict.fromkeys(MODES, 0) for kind in KINDS}


@dataclass(frozen=True)
class Counts:
    """Steps and their tokens, by kind (decode: every request of the step is past its prompt) and by
    the graph they ran in. largest_eager_decode_tokens: of the decode steps without a graph."""

    steps: Table = field(default_factory=_zeros)
    tokens: Table = field(default_factory=_zeros)
    largest_eager_decode_tokens: int = 0

    @classmethod
    def from_numbers(cls, numbers: tuple[int, ...]) -> "Counts":
        """numbers: the 13 of a file, in its order."""
        return cls(_table(numbers[:TOKENS_AT]), _table(numbers[TOKENS_AT:LARGEST_AT]), numbers[-1])


def _table(numbers: tuple[int, ...]) -> Table:
    rows = [numbers[at : at + len(MODES)] for at in range(0, len(numbers), len(MODES))]
    return {kind: dict(zip(MODES, row, strict=True)) for kind, row in zip(KINDS, rows, strict=True)}


def add(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of two engines as one's: sums, and the larger of the largest."""
    sums = [one + other for one, other in zip(first[:-1], second[:-1], strict=True)]
    return (*sums, max(first[-1], second[-1]))


def path_of(folder: Path, dp_rank: int, rank: int) -> Path:
    return folder / f"worker-dp{dp_rank}-rank{rank}.counts"


def create(path: Path) -> memoryview:
    """A new file of zeros; what is stored into the view is in the file. Raises OSError."""
    with path.open("w+b") as file:
        file.write(bytes(BYTES))
        file.flush()
        return mapped(file.fileno())


def mapped(descriptor: int) -> memoryview:
    """The numbers of an open file of the right size, to read and to write. Raises OSError."""
    return memoryview(mmap.mmap(descriptor, BYTES)).cast("Q")


def view(path: Path) -> memoryview:
    """The numbers of a file as they change. Raises OSError, and ValueError for another size."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), BYTES, access=mmap.ACCESS_READ)).cast("Q")


def engines(folder: Path) -> list[Path]:
    """One file for each engine (data parallel rank): the ranks of one run the same steps."""
    ranks = [
        (int(name[1]), int(name[2]), path)
        for path in folder.iterdir()
        if (name := NAME.fullmatch(path.name)) and path.stat().st_size == BYTES
    ]
    first = {dp_rank: path for dp_rank, _, path in sorted(ranks, reverse=True)}
    return [first[dp_rank] for dp_rank in sorted(first)]


def total(views: Iterable[memoryview]) -> tuple[int, ...]:
    """The numbers of several engines as one's."""
    numbers = (0,) * LENGTH
    for each in views:
        numbers = add(numbers, tuple(each))
    return numbers


def read_all(folder: Path) -> Counts:
    """All engines' steps so far. Raises OSError."""
    return Counts.from_numbers(total(view(path) for path in engines(folder)))
