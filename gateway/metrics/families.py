"""Every metric of the gateway: its name, its labels, its help text. docs/metrics.md explains them.

With PROMETHEUS_MULTIPROC_DIR set, the library keeps each value in a file of that folder, one set
a worker; a page is then made from all of them, and gauges need to know how they add up.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway import __version__
from gateway.metrics import edges
from gateway.metrics.tally import BulkHistogram

# Of live workers: the sum, or the value that any (max) or all (min) of them agree on.
Mode = Literal["livesum", "livemax", "livemin"]


class Families:
    """The metrics. `registry`: where they are collected; None with many workers."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._registry = registry
        self._requests()
        self._tokens()
        self._times()
        self._now()
        self._ledger()

    def _requests(self) -> None:
        self.requests = self._counter(
            "gateway_requests_total",
            "Requests that have ended.",
            "route method status outcome",
        )
        self.rejected = self._counter(
            "gateway_rejected_total", "Requests refused before an engine saw them.", "reason"
        )
        self.resent = self._counter(
            "gateway_resent_total", "Requests sent a second time, on a fresh connection."
        )
        self.received = self._counter(
            "gateway_received_bytes_total", "Bytes of request bodies from clients."
        )
        self.sent = self._counter("gateway_sent_bytes_total", "Bytes of answers to clients.")
        self.events = self._counter("gateway_sse_events_total", "Server-sent events of engines.")

    def _tokens(self) -> None:
        self.key_requests = self._counter(
            "gateway_key_requests_total", "Requests of each key that have ended.", "key outcome"
        )
        self.prompt_tokens = self._counter(
            "gateway_prompt_tokens_total", "Tokens that clients sent.", "key model"
        )
        self.completion_tokens = self._counter(
            "gateway_completion_tokens_total", "Tokens that engines generated.", "key model"
        )
        self.estimated = self._counter(
            "gateway_estimated_tokens_total",
            "Tokens of the two above that are our estimate: the engine's count never came.",
        )

    def _times(self) -> None:
        self.duration = self._histogram(
            "gateway_request_duration_seconds",
            "From a request's head to the end of its answer, probes left out.",
            edges.DURATION,
            "route outcome",
        )
        self.first_token = self._histogram(
            "gateway_time_to_first_token_seconds",
            "From a request's head to the first bytes of a streamed answer.",
            edges.FIRST_TOKEN,
        )
        self.per_token = self._histogram(
            "gateway_time_per_output_token_seconds",
            "Mean time between tokens of a streamed answer that ended well.",
            edges.PER_TOKEN,
        )
        self.queue = self._histogram(
            "gateway_queue_seconds", "Wait for a slot, of requests that got one.", edges.QUEUE
        )

    def _now(self) -> None:
        self.in_flight = self._gauge("gateway_requests_in_flight", "Requests that hold a slot.")
        self.queued = self._gauge("gateway_requests_queued", "Requests that wait for a slot.")
        self.slots = self._gauge(
            "gateway_slots", "Requests that may hold a slot, all workers together.", mode="livemax"
        )
        self.upstream_ready = self._gauge(
            "gateway_upstream_ready", "1: the engine takes requests.", "upstream", "livemin"
        )
        self.upstream_in_flight = self._gauge(
            "gateway_upstream_requests_in_flight", "Requests at the engine.", "upstream"
        )
        self.upstream_ejected = self._gauge(
            "gateway_upstream_ejected",
            "1: the engine is passed over while another can serve.",
            "upstream",
            "livemax",
        )
        self.ejections = self._counter(
            "gateway_upstream_ejections_total", "Ejections of the engine.", "upstream cause"
        )
        self.build = self._gauge("gateway_build_info", "Always 1.", "version python", "livemax")
        self.build.labels(__version__, platform.python_version()).set(1)

    def _ledger(self) -> None:
        self.ledger_pending = self._gauge(
            "gateway_ledger_pending_rows", "Rows of the usage ledger that are still in memory."
        )
        self.ledger_failures = self._counter(
            "gateway_ledger_failures_total", "Writes of the usage ledger that failed."
        )

    def _counter(self, name: str, text: str, labels: str = "") -> Counter:
        return Counter(name, text, labels.split(), registry=self._registry)

    def _histogram(
        self, name: str, text: str, buckets: Sequence[float], labels: str = ""
    ) -> BulkHistogram:
        return BulkHistogram(name, text, labels.split(), buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, text: str, labels: str = "", mode: Mode = "livesum") -> Gauge:
        names = labels.split()
        return Gauge(name, text, names, registry=self._registry, multiprocess_mode=mode)
