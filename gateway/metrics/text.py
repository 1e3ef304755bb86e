"""Prometheus' text format, made in small steps: a page of a thousand series takes ten milliseconds,
and streams are not to wait for all of it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# About half a millisecond.
SAMPLES = 50


@dataclass(frozen=True)
class One(Collector):
    """A single metric, as the library's writer takes it."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.metric,)


def steps(metrics: Iterable[Metric]) -> Iterator[bytes]:
    """The page in pieces: each metric's HELP and TYPE lines once, then its samples."""
    for metric in metrics:
        part = copy.copy(metric)
        for first in range(0, len(metric.samples) or 1, SAMPLES):
            part.samples = metric.samples[first : first + SAMPLES]
            lines = generate_latest(One(part))
            yield lines if first == 0 else lines.split(b"\n", 2)[2]
