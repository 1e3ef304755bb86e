"""Requests behind a running answer on one connection: they never touch it."""

from __future__ import annotations

import pytest
from common.fake_vllm import FakeVLLM
from common.rawhttp import Client, build
from common.script import DONE, Pause, Send, chunk, delta_event, finish_event, sse_head, stream
from common.servers import AUTH, CHAT, GatewayProcess

STREAM = b'{"stream":true,"stream_options":{"include_usage":true}}'
BEHIND = {
    "garbage": b"\x00\x01 no request\r\n\r\n",
    "a request, then garbage": build("GET", "/livez", {}, b"") + b"\x00no request\r\n\r\n",
}


def everything(client: Client) -> bytes:
    """What comes until the connection ends."""
    data = client.rest()
    while more := client.socket.recv(65536):
        data += more
    return data


@pytest.mark.parametrize("name", BEHIND)
def test_bad_bytes_behind_a_stream(gateway: GatewayProcess, fake: FakeVLLM, name: str) -> None:
    """They end the connection; nothing but the stream was ever written to it."""
    event = delta_event("a")
    steps = [step for _ in range(40) for step in (Send(chunk(event)), Pause(0.02))]
    fake.enqueue(Send(sse_head()), *steps, Send(chunk(DONE)), Send(chunk(b"")))
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, STREAM))
        reply = client.read_head()
        next(client.pieces(reply))
        client.send(BEHIND[name])
        rest = everything(client)
    assert b"HTTP/1.1" not in rest
    assert not rest.endswith(chunk(b""))
    assert gateway.wait_event()["outcome"] == "client_left"
    fake.wait_until(lambda: fake.requests[0].closed_at is not None)


@pytest.mark.parametrize(
    "behind", [build("GET", "/livez", {}, b""), build("POST", CHAT, AUTH, b"{}")]
)
def test_who_leaves_with_a_request_in_the_queue(
    gateway: GatewayProcess, fake: FakeVLLM, behind: bytes
) -> None:
    """Rule 4 holds for the first of two as well, before its first byte."""
    fake.enqueue(Pause(1.2), *stream("a"))
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, STREAM))
        fake.wait_until(lambda: len(fake.requests) == 1)
        client.send(behind * 2)
    fake.wait_until(lambda: fake.requests[0].closed_at is not None, 1)
    assert gateway.wait_event()["outcome"] == "client_left"
    assert "ASGI" not in gateway.output
    assert len(fake.requests) == 1


def test_an_older_client_gets_no_chunks(gateway: GatewayProcess, fake: FakeVLLM) -> None:
    """HTTP/1.0 knows none: its body ends with the connection."""
    texts = [chr(97 + n % 26) for n in range(20)]
    fake.enqueue(*stream(*texts, interval_s=0.01))
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, STREAM).replace(b"HTTP/1.1", b"HTTP/1.0"))
        reply = client.read_head()
        assert reply.header("transfer-encoding") is None
        assert reply.header("connection") == "close"
        body = everything(client)
    events = [delta_event("", role="assistant"), *map(delta_event, texts), finish_event(), DONE]
    assert body == b"".join(events)
