"""What the gateway tells Prometheus.

request ends ──▶ observe: plain additions ──flush──▶ prometheus_client ──▶ page
                                            ▲                 │
admission, engines ──▶ readings ────────────┘      one worker: in memory
                                                   many: a file each, added up on the page
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    ProcessCollector,
    disable_created_metrics,
    values,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from gateway.log import Record, sane
from gateway.metrics.families import Families
from gateway.metrics.gauges import Readings, show
from gateway.metrics.series import METHODS, OTHER, Counted, Series
from gateway.metrics.text import steps

log = logging.getLogger("gateway.metrics")

# With many workers: how old one's numbers may be on another's page.
SHARE_INTERVAL_S = 0.25
SHARED_BY = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """One for a worker. `routes`: the table; `readings`: called when a page is made."""

    def __init__(self, routes: Sequence[Counted], readings: Callable[[], Readings]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # one series more for each, which nothing here asks for
        self._shared = shared()
        self._registry = CollectorRegistry()
        self._families = Families(None if self._shared else self._registry)
        self._series = Series(self._families, routes)
        self._readings = readings
        self._ledger_failures = 0  # of them are counted
        self._ejections: Mapping[tuple[int, str], int] = {}  # the same
        self._failed = False
        if self._shared:
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        else:
            ProcessCollector(namespace="gateway", registry=self._registry)

    def observe(self, record: Record, now: float) -> None:
        """Count a request that has ended at `now` (monotonic). No I/O, never raises."""
        series = self._series
        method = record.method if record.method in METHODS else OTHER
        ended = series.ended[record.route, method, record.status, record.outcome]
        ended.requests.n += 1
        if record.outcome == "rejected":
            series.rejected.get(record.reason or OTHER, series.rejected[OTHER]).n += 1
        if ended.duration is None or record.probe:
            return
        ended.duration.observe(now - record.started)
        volume(series, record)
        if record.queued_s:
            series.queue.observe(record.queued_s)
        if record.stream:
            pace(series, record, now)

    async def page(self) -> bytes:
        """The text for Prometheus: all workers' numbers, in steps between which streams go on."""
        self.refresh()
        metrics: Iterable[Metric] = self._registry.collect()
        if self._shared:  # reads files
            metrics = await asyncio.to_thread(list, metrics)
        parts = []
        for part in steps(metrics):
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)

    def refresh(self) -> None:
        """Bring what prometheus_client holds up to date."""
        now = self._readings()
        self._series.ledger_failures.n = now.ledger_failures - self._ledger_failures
        self._ledger_failures = now.ledger_failures
        for labels, total in now.ejections.items():
            self._families.ejections.labels(*labels).inc(total - self._ejections.get(labels, 0))
        self._ejections = now.ejections
        self._series.flush()
        show(now, self._families)

    async def run(self) -> None:
        """Keep this worker's numbers fresh on the pages of the others, until cancelled; with one
        worker there is nothing to do. A full disk costs numbers, never a request.
        """
        try:
            while self._shared:
                await asyncio.sleep(SHARE_INTERVAL_S)
                self._share()
        finally:
            if self._shared:
                self._share()

    def _share(self) -> None:
        try:
            self.refresh()
        except OSError as error:
            if not self._failed:
                log.error("metrics are not shared between workers: %s", error.strerror)
            self._failed = True
        else:
            self._failed = False


def volume(series: Series, record: Record) -> None:
    """Bytes, events and tokens."""
    series.received.n += record.bytes_in
    series.sent.n += record.bytes_out
    series.events.n += record.frames
    if record.resent:
        series.resent.n += 1
    if record.key is None:
        return
    used = series.used[record.key, record.model, record.outcome]
    used.requests.n += 1
    prompt, completion = sane(record.prompt_tokens), sane(record.completion_tokens)
    used.prompt.n += prompt
    used.completion.n += completion
    if record.tokens_estimated:
        series.estimated.n += prompt + completion


def pace(series: Series, record: Record, now: float) -> None:
    """How soon and how fast a stream came. An engine's error event is no first token, and a time
    per token needs the engine's own count of an answer that is complete.
    """
    first = record.first_byte_at
    if first is None or record.outcome == "upstream_error":
        return
    series.first_token.observe(first - record.started)
    gaps = record.completion_tokens - 1
    if gaps > 0 and record.outcome == "ok" and not record.tokens_estimated:
        series.per_token.observe((now - first) / gaps)


def shared() -> bool:
    """Whether the library keeps values in files, for many workers. It decides that when it is
    imported; a folder named afterwards would leave each worker with a page of its own.
    """
    wanted = SHARED_BY in os.environ
    if wanted != getattr(values.ValueClass, "_multiprocess", False):
        raise RuntimeError(f"{SHARED_BY} has to be set before the process starts")
    return wanted
