"""/metrics of any worker has the totals of all, also of one that was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from common.fake_vllm import FakeVLLM
from common.rawhttp import once
from common.servers import GatewayProcess, wait_until
from common.workers import pids
from prometheus_client.parser import text_string_to_metric_families

CHAT = "/v1/chat/completions"

Start = Callable[..., GatewayProcess]


def counted(gateway: GatewayProcess, name: str, **labels: str) -> float:
    """The sum over all series with these labels, on the page of whichever worker answers."""
    text = once(gateway.port, "GET", "/metrics").body.decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def pages_say(gateway: GatewayProcess, wanted: float, name: str, **labels: str) -> None:
    """Ten pages in a row say so; a worker's numbers reach the others within a moment."""
    wait_until(lambda: all(counted(gateway, name, **labels) == wanted for _ in range(10)))


def test_totals_of_all_workers(start: Start, fake: FakeVLLM) -> None:
    gateway = start()
    for _ in range(40):
        assert gateway.chat().status == 200
    ok = {"route": CHAT, "outcome": "ok"}
    pages_say(gateway, 40, "gateway_requests_total", **ok)
    pages_say(gateway, 40, "gateway_request_duration_seconds_count", **ok)
    pages_say(gateway, 1, "gateway_upstream_ready", upstream="0")
    os.kill(min(pids(gateway)), signal.SIGKILL)
    wait_until(lambda: len(pids(gateway)) == 2)
    gateway.wait_ready()
    pages_say(gateway, 40, "gateway_requests_total", **ok)
    pages_say(gateway, 0, "gateway_requests_in_flight")
