"""A client that leaves in any phase, in any way, through either door: the engine is told at once.

B17.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from common.rawhttp import Client, build
from common.row import Door
from common.script import Pause, Repeat, Script, Send, chunk, delta_event, head, sse_head
from common.servers import AUTH, CHAT, wait_until

STREAM, PLAIN = b'{"stream":true}', b"{}"
EVENT = chunk(delta_event())
PHASES: dict[str, tuple[Script, bytes]] = {
    "before the head": ((Pause(30),), STREAM),
    "after the head": ((Send(sse_head()), Pause(30)), STREAM),
    "mid-stream": ((Send(sse_head()), Repeat(EVENT, 3000, 0.01)), STREAM),
    "mid-event": ((Send(sse_head() + EVENT), Send(chunk(b"data: {")), Pause(30)), STREAM),
    "after one event": ((Send(sse_head() + EVENT), Pause(30)), STREAM),
    "plain, waiting": ((Pause(30),), PLAIN),
    "plain, in its body": ((Send(head(200, [("content-length", "9")]) + b"x"), Pause(30)), PLAIN),
    "in an error's body": ((Send(head(500, [("content-length", "9")]) + b"x"), Pause(30)), PLAIN),
}
WAYS: list[Callable[[Client], None]] = [
    Client.reset,
    lambda client: client.socket.close(),
    lambda client: client.socket.shutdown(socket.SHUT_RDWR),
]


def leave_all(clients: Sequence[Client]) -> float:
    """Each in another way; returns when."""
    left = time.monotonic()
    for number, client in enumerate(clients):
        WAYS[number % len(WAYS)](client)
    return left


@pytest.mark.parametrize("phase", PHASES)
def test_leaving(door: Door, phase: str) -> None:
    """B17 (1) to (4): FIN, RST and both directions shut; told within a second, counted once."""
    door.gateway.mark()
    script, body = PHASES[phase]
    clients = [door.client() for _ in WAYS]
    for client in clients:
        door.engine.enqueue(*script)
        door.send(client, body)
    door.engine.wait_until(lambda: len(door.engine.requests) == len(WAYS))
    time.sleep(0.1)
    left = leave_all(clients)
    try:
        door.engine.wait_until(lambda: all(one.closed_at for one in door.engine.requests), 1)
    finally:
        for client in clients:
            client.socket.close()
    assert max(one.closed_at or 0 for one in door.engine.requests) - left < 1
    wait_until(door.idle, 1)
    wait_until(lambda: len(door.gateway.events()) == len(WAYS), 1)
    assert {line["outcome"] for line in door.gateway.events()} == {"client_left"}


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_leaving_while_uploading(door: Door, framing: str) -> None:
    """B17 (5): in the middle of a large body; the engine never hears of it."""
    door.gateway.mark()
    fields = {**AUTH, "content-length": "2000000"}
    start = build("POST", CHAT, fields, b"")
    if framing == "chunked":
        start = start.replace(b"content-length: 2000000", b"transfer-encoding: chunked")
    with door.client() as client:
        client.send(start + (chunk(b"x" * 700_000) if framing == "chunked" else b"x" * 700_000))
        time.sleep(0.1)
    if door.name == "gateway":
        assert door.gateway.wait_event()["outcome"] == "client_left"
    wait_until(door.idle, 1)
    assert not door.engine.requests
    assert door.ask(body=PLAIN).status == 200


def test_leaving_at_each_moment_of_a_request(door: Door) -> None:
    """B17: also between the bytes of a head; nothing stays, whatever had been sent."""
    whole = build("POST", CHAT, AUTH, STREAM)
    door.engine.behaviour.script = (Send(sse_head() + EVENT), Pause(30))
    try:
        for cut in range(1, len(whole), 9):
            with door.client() as client:
                client.send(whole[:cut])
                if cut % 2:
                    client.reset()
        wait_until(door.idle, 2)
        assert not door.engine.requests
        for number in range(20):
            with door.client() as client:
                client.send(whole)
                time.sleep(number / 4000)
                WAYS[number % 2](client)
        wait_until(partial(_all_closed, door), 2)
    finally:
        door.engine.behaviour.script = None
    wait_until(door.idle, 1)


def _all_closed(door: Door) -> bool:
    return all(one.closed_at for one in door.engine.requests) and door.idle()


def test_a_client_that_took_its_answer_did_not_leave(door: Door) -> None:
    """The close after a whole answer is no client that left."""
    reply = door.ask()
    assert door.line(reply)["outcome"] == "ok"
