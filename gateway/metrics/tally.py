"""Plain numbers on the hot path, handed to prometheus_client in bulk.

One `inc` of the library costs 0.4 µs, with many workers 1 µs, and a request needs a dozen. Here it
is an addition; `flush` passes on what has come together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from prometheus_client import Counter, Histogram


class BulkHistogram(Histogram):
    """A histogram that takes many observations at once."""

    @property
    def edges(self) -> Sequence[float]:
        """Upper edges of its buckets; of the last one: infinity."""
        return self._upper_bounds

    def add(self, counts: Sequence[int], total: float) -> None:
        """`counts`: new observations in each bucket, not accumulated; `total`: their sum."""
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


class Sum:
    """A counter's series: add to `n`."""

    __slots__ = ("_make", "_series", "n")

    def __init__(self, make: Callable[[], Counter]) -> None:
        self._make = make
        self._series: Counter | None = None
        self.n = 0

    def start(self) -> Counter:
        """Make the series. Not while a request is counted: with many workers it writes a file."""
        if self._series is None:
            self._series = self._make()
        return self._series

    def flush(self) -> None:
        if self.n:
            self.start().inc(self.n)
            self.n = 0


class Spread:
    """A histogram's series."""

    __slots__ = ("_counts", "_edges", "_make", "_series", "_total")

    def __init__(self, edges: Sequence[float], make: Callable[[], BulkHistogram]) -> None:
        self._edges = edges
        self._make = make
        self._series: BulkHistogram | None = None
        self._empty()

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self._total += value

    def start(self) -> BulkHistogram:
        if self._series is None:
            self._series = self._make()
        return self._series

    def flush(self) -> None:
        if any(self._counts):
            self.start().add(self._counts, self._total)
            self._empty()

    def _empty(self) -> None:
        self._counts = [0] * len(self._edges)
        self._total = 0.0
