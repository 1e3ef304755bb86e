"""nginx, the real gateway and a scripted engine in a row: what only shows with all three."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from common.fake_vllm import FakeVLLM
from common.front import MAX_BODY, Front
from common.rawhttp import Client, build, once
from common.script import DONE, Pause, Send, chunk, delta_event, sse_head
from common.servers import AUTH, CHAT, GatewayProcess, write_keys


@dataclass(frozen=True)
class Row:
    """The three of them, ready."""

    front: Front
    gateway: GatewayProcess
    engine: FakeVLLM


@pytest.fixture
def row(tmp_path: Path) -> Iterator[Row]:
    limits = {"first_byte_timeout_s": 2, "hold_s": 0.3, "max_body_bytes": MAX_BODY}
    with (
        FakeVLLM() as engine,
        GatewayProcess(write_keys(tmp_path), engine.url, **limits) as gateway,
        Front(tmp_path, f"127.0.0.1:{gateway.port}") as front,
    ):
        gateway.wait_ready()
        yield Row(front, gateway, engine)


def test_events_keep_their_pace(row: Row) -> None:
    steps = [step for _ in range(6) for step in (Send(chunk(delta_event())), Pause(0.2))]
    row.engine.enqueue(Send(sse_head()), *steps, Send(chunk(DONE)), Send(chunk(b"")))
    reply = once(row.front.port, "POST", CHAT, AUTH, {"stream": True})
    times = [at for at, _ in reply.arrivals]
    assert reply.body == delta_event() * 6 + DONE
    assert 0.1 < median(later - at for at, later in pairwise(times)) < 0.3
    assert reply.header("x-accel-buffering") == "no"


def test_one_request_id_in_every_place(row: Row) -> None:
    reply = once(row.front.port, "POST", CHAT, {**AUTH, "X-Request-Id": "trace-1"}, {})
    assert reply.header("x-request-id") == "trace-1"
    assert row.engine.requests[0].header("x-request-id") == b"trace-1"
    assert row.front.wait_for_log(1)[0]["request_id"] == "trace-1"
    assert "trace-1" in str(row.gateway.wait_event())


def test_a_client_that_leaves_ends_the_generation(row: Row) -> None:
    row.engine.enqueue(Pause(30))
    with Client(row.front.port) as client:
        client.send(build("POST", CHAT, AUTH, {"stream": True}))
        row.engine.wait_until(lambda: row.engine.requests)
        left = time.monotonic()
    row.engine.wait_until(lambda: row.engine.requests[0].closed_at, timeout_s=2)
    assert (row.engine.requests[0].closed_at or 0) - left < 1


def test_silence_is_reported_by_the_gateway(row: Row) -> None:
    row.engine.enqueue(Pause(30))
    reply = once(row.front.port, "POST", CHAT, AUTH, {})
    assert (reply.status, reply.json()["error"]["code"]) == (504, "upstream_timeout")
    assert len(row.engine.requests) == 1


def test_a_missing_engine_is_the_gateways_503(row: Row) -> None:
    row.engine.stop_listening(reset=True)
    reply = once(row.front.port, "POST", CHAT, AUTH, {})
    assert (reply.status, reply.json()["error"]["code"]) == (503, "not_ready")
    assert reply.header("retry-after") == "10"
    assert "phase" in reply.json()["error"]["message"]


def test_a_wrong_key_is_the_gateways_401(row: Row) -> None:
    reply = once(row.front.port, "POST", CHAT, {"Authorization": "Bearer sk-x"}, {})
    assert (reply.status, reply.json()["error"]["code"]) == (401, "invalid_api_key")
    assert row.engine.requests == []


def test_both_have_one_body_limit(row: Row) -> None:
    for port in (row.front.port, row.gateway.port):
        for size in (MAX_BODY, MAX_BODY + 1):
            body = b'{"a":"%b"}' % (b"x" * (size - 8))
            reply = once(port, "POST", CHAT, AUTH, body)
            assert reply.status == (200 if size == MAX_BODY else 413), (port, size)
            assert size == MAX_BODY or reply.json()["error"]["code"] == "body_too_large"


TRAVERSALS = [
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "/v1/..%2fmetrics",
    "/v1/%252e%252e/metrics",
    "/v1//chat/completions",
    "/v1/chat/completions/",
    "/v1/../livez",
    "/v1/x/../chat/completions",
    "/V1/models",
    "/v1/models%00",
    "/v1/models;x",
    "/v1\\metrics",
    "/v1/load_lora_adapter",
    "/v1/%63hat/completions%2f..%2f..%2fsleep",
    "http://vllm:8000/metrics",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_spelling_reaches_another_route_of_the_engine(row: Row, method: str) -> None:
    known = len(row.engine.log)
    for target in TRAVERSALS:
        reply = once(row.front.port, method, target, AUTH, b"{}" if method == "POST" else b"")
        assert reply.status in {400, 404, 405}, (target, reply.status)
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}, target
    asked = {one.target for one in row.engine.log[known:]}
    assert asked <= {"/health", "/v1/models", "/version"}  # its probes
