"""The end of the drain time, for requests in phases that a stream never has (rule 9)."""

from __future__ import annotations

from collections.abc import Callable

from common.fake_vllm import FakeVLLM
from common.rawhttp import build
from common.script import Pause, Send, head, sse_head
from common.servers import AUTH, CHAT, GatewayProcess, wait_until

Start = Callable[..., GatewayProcess]


def outcomes(gateway: GatewayProcess) -> list[str]:
    return [event["outcome"] for event in gateway.events() if event["route"] == CHAT]


def test_a_plain_body_is_cut_when_the_drain_is_over(fake: FakeVLLM, start: Start) -> None:
    """Its status is out and no event can follow: the client sees that the body is not whole."""
    gateway = start(fake.url, drain_s=0.3)
    gateway.wait_ready()
    fields = [("content-type", "application/json"), ("transfer-encoding", "chunked")]
    fake.enqueue(Send(head(200, fields) + b'9\r\n{"a": 1, \r\n'), Pause(30))
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, b"{}"))
        reply = client.read_head()
        gateway.terminate()
        client.read_body(reply)
        assert (reply.status, reply.whole, reply.body) == (200, False, b'{"a": 1, ')
        assert client.at_end()
    assert gateway.wait_exit() == 0
    fake.wait_until(lambda: fake.requests[0].closed_at, 1)
    assert outcomes(gateway) == ["drained"]


def test_what_still_waits_is_refused_when_the_drain_is_over(fake: FakeVLLM, start: Start) -> None:
    """In the queue behind a stream that does not end: 503, and the engine never hears of it."""
    gateway = start(fake.url, drain_s=0.3, max_concurrency=1)
    gateway.wait_ready()
    fake.enqueue(Send(sse_head()), Pause(30))
    with gateway.client() as running, gateway.client() as waiting:
        running.send(build("POST", CHAT, AUTH, b'{"stream":true}'))
        fake.wait_until(lambda: fake.requests)
        waiting.send(build("POST", CHAT, AUTH, b"{}"))
        wait_until(lambda: gateway.status()["gateway"]["queued"] == 1)
        gateway.terminate()
        cut = running.read_body(running.read_head())
        refused = waiting.read_body(waiting.read_head())
    assert (cut.whole, b'"shutting_down"' in cut.body) == (True, True)
    assert (refused.status, refused.json()["error"]["code"]) == (503, "shutting_down")
    assert int(refused.header("retry-after") or 0) > 0
    assert gateway.wait_exit() == 0
    assert len(fake.requests) == 1
    assert outcomes(gateway) == ["drained", "drained"]
