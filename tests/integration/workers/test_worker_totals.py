"""Limits, metrics and ledger of several workers are those of one, also after one was killed."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.rawhttp import Reply, build, once
from common.script import Repeat, Send, chunk, delta_event, sse_head
from common.servers import AUTH, CHAT, KEY, GatewayProcess, wait_until
from common.workers import Streams, pids

# Several interpreters start in each test: patience with a busy machine.
pytestmark = pytest.mark.timeout(240)

Start = Callable[..., GatewayProcess]


def key(**limits: int) -> str:
    lines = [f"{name} = {value}" for name, value in limits.items()]
    return "\n".join(["[[key]]", 'name = "default"', f'key = "{KEY}"', *lines, ""])


def at_once(gateway: GatewayProcess, count: int, body: bytes = b"{}") -> list[Reply]:
    """As many requests, each on a connection of its own, all sent before any answer is read."""
    with ExitStack() as stack:
        clients = [stack.enter_context(gateway.client()) for _ in range(count)]
        for client in clients:
            client.send(build("POST", CHAT, AUTH, body))
        return [client.read_body(client.read_head()) for client in clients]


def counted(gateway: GatewayProcess) -> int:
    """Chat requests, as the page of any worker has them."""
    text = once(gateway.port, "GET", "/metrics").body.decode()
    found = re.findall(rf'^gateway_requests_total{{[^}}]*route="{CHAT}"[^}}]*}} (\S+)', text, re.M)
    return round(sum(map(float, found)))


def test_requests_per_minute_are_exact(start: Start) -> None:
    gateway = start(key(requests_per_minute=20), workers=3)
    replies = at_once(gateway, 60)
    assert Counter(reply.status for reply in replies) == {200: 20, 429: 40}
    left = [one.header("x-ratelimit-remaining-requests") for one in replies if one.status == 200]
    assert sorted(map(int, filter(None, left))) == list(range(20))
    assert all(int(one.header("retry-after") or 0) > 0 for one in replies if one.status == 429)


def test_concurrency_is_exact_and_comes_back(start: Start, fake: FakeVLLM) -> None:
    """Of a worker that was killed, and of streams whose client left."""
    gateway = start(key(max_concurrency=20))
    fake.behaviour.script = (Send(sse_head()), Repeat(chunk(delta_event("x")), 100_000, 0.05))

    def running() -> int:
        return sum(one.closed_at is None for one in fake.requests)

    with Streams(gateway) as streams:
        streams.on_each()
        victim, other = streams.of
        os.kill(victim, signal.SIGKILL)
        left = len(streams.of[other])
        fake.wait_until(lambda: running() == left)
        wait_until(lambda: "signal 9" in gateway.output)
        wait_until(lambda: streams.more(1) == {200: 1})  # the manager has cleared up
        assert streams.more(30) == {200: 19 - left, 429: 11 + left}
        assert running() == 20
    fake.wait_until(lambda: not running())
    with Streams(gateway) as streams:
        wait_until(lambda: streams.more(1) == {200: 1})


def test_metrics_and_ledger_add_up_over_workers_and_deaths(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    gateway = start(usage_db=path)

    def booked() -> int:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            (total,) = database.execute("SELECT sum(requests) FROM usage").fetchone()
        return int(total or 0)

    def all_there(count: int) -> bool:
        """On every worker's page, and in the ledger."""
        return booked() == count and {counted(gateway) for _ in range(10)} == {count}

    at_once(gateway, 60)
    wait_until(lambda: all_there(60), 30)
    for count in (120, 180):
        os.kill(pids(gateway)[0], signal.SIGKILL)
        wait_until(lambda n=count: gateway.output.count("signal 9") == n // 60 - 1)  # type: ignore[misc]
        at_once(gateway, 60)
        wait_until(lambda n=count: all_there(n), 30)  # type: ignore[misc]
        wait_until(lambda n=count: len(pids(gateway)) == 2, 30)  # type: ignore[misc]
    assert gateway.process.poll() is None
    gateway.terminate()
    assert gateway.wait_exit() == 0
    assert booked() == 180
