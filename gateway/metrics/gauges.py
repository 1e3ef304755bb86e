"""What goes on right now, as the composition root reads it and the gauges show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.metrics.families import Families


@dataclass(frozen=True, slots=True)
class UpstreamReading:
    """One engine, by its place in GATEWAY_UPSTREAMS."""

    index: int
    ready: bool
    in_flight: int
    ejected: bool = False


@dataclass(frozen=True, slots=True)
class Readings:
    """Of this worker, at one moment."""

    in_flight: int
    queued: int
    slots: int
    upstreams: tuple[UpstreamReading, ...]
    ledger_pending: int = 0  # rows of the usage ledger that are not in the database yet
    ledger_failures: int = 0  # writes of it that failed, since the start
    ejections: Mapping[tuple[int, str], int] = field(default_factory=dict)  # upstream, cause


def show(now: Readings, families: Families) -> None:
    """Set the gauges."""
    families.in_flight.set(now.in_flight)
    families.queued.set(now.queued)
    families.slots.set(now.slots)
    families.ledger_pending.set(now.ledger_pending)
    for each in now.upstreams:
        families.upstream_ready.labels(each.index).set(each.ready)
        families.upstream_ejected.labels(each.index).set(each.ejected)
        families.upstream_in_flight.labels(each.index).set(each.in_flight)
