"""A queue that is fair between keys: each key's own in order of arrival, the keys in turn.

    turn ──▶ a: 1 2 3 4 5 6 7
             b: 1 2               pop: a1 b1 c1 a2 b2 a3 …
             c: 1

The key whose turn it was goes to the end; a new key joins there. Every operation is O(1): the
lines and the keys are linked lists, and keys are also kept by the length of their line, which
changes by one at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Items are distinct. A key has an entry only while something of it waits."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()  # the next turn first
        self._by_length: dict[int, OrderedDict[str, None]] = {}
        self._total = 0
        self.longest = 0  # items of the key with the most

    def __len__(self) -> int:
        return self._total

    def waiting(self, key: str) -> int:
        """Items of that key."""
        line = self._lines.get(key)
        return len(line) if line is not None else 0

    def push(self, key: str, item: T, first: bool = False) -> None:
        """`first`: before what waits of that key."""
        line = self._lines.setdefault(key, OrderedDict())
        line[item] = None
        if first:
            line.move_to_end(item, last=False)
        self._total += 1
        self._file(key, len(line) - 1, len(line))
        self.longest = max(self.longest, len(line))

    def pop(self) -> T:
        """The oldest item of the key whose turn it is. Raises IndexError when empty."""
        if not self._total:
            raise IndexError("pop from an empty queue")
        key, line = next(iter(self._lines.items()))
        item, _ = line.popitem(last=False)
        self._lines.move_to_end(key)
        self._shortened(key, line)
        return item

    def pop_youngest_of_longest(self) -> T:
        """The youngest item of a key with the most. Raises KeyError when empty."""
        key = next(iter(self._by_length[self.longest]))
        line = self._lines[key]
        item, _ = line.popitem()
        self._shortened(key, line)
        return item

    def discard(self, key: str, item: T) -> None:
        """Take the item out where it still waits."""
        line = self._lines.get(key)
        if line is not None and item in line:
            del line[item]
            self._shortened(key, line)

    def _shortened(self, key: str, line: OrderedDict[T, None]) -> None:
        """By one. The longest line can only have become one shorter: this key has that many."""
        self._total -= 1
        before = len(line) + 1
        self._file(key, before, len(line))
        if before == self.longest and before not in self._by_length:
            self.longest = len(line)
        if not line:
            del self._lines[key]

    def _file(self, key: str, before: int, after: int) -> None:
        """Move the key to where keys of its new length are."""
        if before:
            keys = self._by_length[before]
            del keys[key]
            if not keys:
                del self._by_length[before]
        if after:
            self._by_length.setdefault(after, OrderedDict())[key] = None
