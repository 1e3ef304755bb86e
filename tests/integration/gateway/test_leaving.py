"""A client that leaves, at any moment, frees its slot and closes the engine's request (rule 4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from common.fake_vllm import Behaviour, FakeVLLM
from common.rawhttp import Client, build
from common.script import Pause, Repeat, Script, Send, chunk, delta_event, head, sse_head
from common.servers import AUTH, CHAT, GatewayProcess, wait_until

STREAM = b'{"stream":true}'
EVENT = chunk(delta_event())


def idle(gateway: GatewayProcess) -> bool:
    counts = gateway.status()["gateway"]
    return bool(counts["in_flight"] == counts["queued"] == 0)


@pytest.mark.parametrize("how", [Client.reset, lambda client: client.socket.close()])
@pytest.mark.parametrize(
    ("script", "body", "status"),
    [
        ((Pause(30),), STREAM, None),
        ((Send(sse_head()), Pause(30)), STREAM, 200),
        ((Send(sse_head()), Repeat(EVENT, 3000, 0.01)), STREAM, 200),
        ((Pause(30),), b"{}", None),
        ((Send(head(200, [("content-length", "9")]) + b"x"), Pause(30)), b"{}", 200),
    ],
    ids=["before the head", "silent stream", "mid-stream", "plain, waiting", "plain, mid-body"],
)
def test_leaving_closes_the_request_at_the_engine(
    fake: FakeVLLM,
    gateway: GatewayProcess,
    script: Script,
    body: bytes,
    status: int | None,
    how: Callable[[Client], None],
) -> None:
    """B17 (1) to (4)."""
    fake.enqueue(*script)
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, body))
        fake.wait_until(lambda: fake.requests and fake.requests[0].complete)
        time.sleep(0.05)
        left = time.monotonic()
        how(client)
        fake.wait_until(lambda: fake.requests[0].closed_at, 1)
    assert (fake.requests[0].closed_at or 0) - left < 1
    event = gateway.wait_event()
    assert (event["outcome"], event["status"]) == ("client_left", status)
    wait_until(lambda: idle(gateway), 1)
    assert len(gateway.events()) == 1


def test_leaving_while_uploading(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B17 (5): the engine never hears of it."""
    with gateway.client() as client:
        client.send(build("POST", CHAT, {**AUTH, "content-length": "1500000"}, b"x" * 700_000))
        time.sleep(0.1)
    assert gateway.wait_event()["outcome"] == "client_left"
    assert not fake.requests
    assert idle(gateway)


def test_leaving_the_queue(fake: FakeVLLM, start: Callable[..., GatewayProcess]) -> None:
    """The slot goes to the one behind."""
    gateway = start(fake.url, max_concurrency=1)
    gateway.wait_ready()
    fake.enqueue(Send(sse_head()), Pause(30))
    with gateway.client() as first, gateway.client() as second, gateway.client() as third:
        for number, client in enumerate((first, second, third)):
            client.send(build("POST", CHAT, AUTH, STREAM if number == 0 else b"{}"))
            wait_until(partial(_has, gateway, (1, number)))
        second.reset()
        wait_until(lambda: _counts(gateway) == (1, 1), 1)
        first.reset()
        assert third.read_body(third.read_head()).status == 200
    assert len(fake.requests) == 2


def _has(gateway: GatewayProcess, counts: tuple[int, int]) -> bool:
    return _counts(gateway) == counts


def _counts(gateway: GatewayProcess) -> tuple[int, int]:
    counts = gateway.status()["gateway"]
    return counts["in_flight"], counts["queued"]


def test_leaving_while_held(start: Callable[..., GatewayProcess]) -> None:
    """No engine is ready: the request waits, leaves, and is never sent."""
    with FakeVLLM(Behaviour(health=503)) as fake:
        gateway = start(fake.url, hold_s=30)
        with gateway.client() as client:
            client.send(build("POST", CHAT, AUTH, b"{}"))
            wait_until(lambda: _counts(gateway) == (0, 1))
            client.reset()
            wait_until(lambda: _counts(gateway) == (0, 0), 1)
        assert gateway.wait_event()["outcome"] == "client_left"
        fake.behaviour.health = 200
        gateway.wait_ready()
        assert not fake.requests


def test_many_streams_at_once_and_many_cancels(start: Callable[..., GatewayProcess]) -> None:
    """B18: 130 parallel streams all start; 500 requests cancelled at odd moments leave nothing."""
    with FakeVLLM() as fake:
        gateway = start(fake.url)
        gateway.wait_ready()
        fake.behaviour.script = (Send(sse_head()), Send(EVENT), Repeat(EVENT, 100, 0.2))
        clients = [gateway.client() for _ in range(130)]
        for client in clients:
            client.send(build("POST", CHAT, AUTH, STREAM))
        for client in clients:
            assert client.read_head().status == 200
        for client in clients:
            client.reset()
        fake.wait_until(lambda: all(request.closed_at for request in fake.requests), 2)

        fake.behaviour.accept_delay_s = 0.01
        for number in range(500):
            with gateway.client() as client:
                client.send(build("POST", CHAT, AUTH, STREAM))
                time.sleep(number % 21 / 1000)
                client.reset()
        wait_until(lambda: idle(gateway), 2)
        fake.behaviour.script = None
        began = time.monotonic()
        assert gateway.chat(b"{}").status == 200
        assert time.monotonic() - began < 1
        # What stays open is the prober's and the idle pool's, not one a cancelled request.
        fake.wait_until(lambda: fake.open_connections <= 8, 2)


def test_a_crowd_that_leaves_while_the_engine_is_silent(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    """Every one of fifty cancels is seen at the engine within a second."""
    fake.behaviour.script = (Pause(30),)
    try:
        clients = [gateway.client() for _ in range(50)]
        threads = [
            threading.Thread(target=client.send, args=(build("POST", CHAT, AUTH, b"{}"),))
            for client in clients
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        fake.wait_until(lambda: len(fake.requests) == 50)
        for client in clients:
            client.reset()
        fake.wait_until(lambda: all(request.closed_at for request in fake.requests), 1)
    finally:
        fake.behaviour.script = None
