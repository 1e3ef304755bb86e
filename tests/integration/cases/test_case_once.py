"""Connections that die under a request: an idle one costs nothing, a generation is never repeated.

B20, B24.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from common.dns import TinyDNS
from common.fake_vllm import Behaviour, FakeVLLM
from common.front import Front, replace
from common.rawhttp import Reply, once
from common.row import Door, Row
from common.script import Fin, Pause, Reset, Script, Send, chunk, delta_event, head, sse_head
from common.servers import AUTH, CHAT, GatewayProcess, write_keys

PLAIN = b"{}"


def test_two_hundred_rounds_around_the_moment_of_the_hang_up(row: Row) -> None:
    """B20: the engine closes idle connections after 30 ms; requests come 27 to 33 ms apart."""
    row.engine.clear()
    row.engine.behaviour.idle_s = 0.03
    doors = [row.door("gateway"), row.door("nginx")]
    try:
        for number in range(200):
            assert doors[number % 2].ask(body=PLAIN).status == 200, number
            time.sleep(0.027 + number % 13 / 2000)
    finally:
        row.engine.behaviour.idle_s = None
    assert len(row.engine.requests) == 200


@pytest.mark.parametrize("body", [b"{}", b'{"stream":true}'])
def test_a_reused_connection_closed_by_the_request_itself(door: Door, body: bytes) -> None:
    """B20: the engine hangs up the instant bytes arrive on a reused connection."""
    door.ask(body=body)
    door.engine.behaviour.drop_reused = True
    try:
        for _ in range(20):
            reply = door.ask(body=body)
            assert reply.status == 200
            assert door.line(reply)["resent"]
    finally:
        door.engine.behaviour.drop_reused = False


def test_nginx_lets_go_of_idle_connections_first(tmp_path: Path) -> None:
    """B20 between nginx and gateway, in short: 0.4 s and 1.2 s for 60 s and 75 s."""
    edits = {"http/upstream.conf": replace("keepalive_timeout 60s", "keepalive_timeout 400ms")}

    def rounds(first_pause_s: float) -> list[int]:
        statuses = []
        for number in range(13):
            statuses.append(once(front.port, "POST", CHAT, body=PLAIN).status)
            time.sleep(first_pause_s + number / 100)
        return statuses

    with (
        FakeVLLM(Behaviour(idle_s=1.2)) as gateway,
        Front(tmp_path, f"127.0.0.1:{gateway.port}", edits=edits) as front,
        ThreadPoolExecutor(16) as pool,
    ):
        statuses = [
            status
            for each in pool.map(rounds, [0.3 + n / 120 for n in range(16)])
            for status in each
        ]
    assert statuses == [200] * 208


READ_AND_LEFT: dict[str, tuple[Script, int]] = {
    "closed": ((Fin(),), 502),
    "closed after a while": ((Pause(0.1), Fin()), 502),
    "reset": ((Pause(0.02), Reset()), 502),
    "closed in the head": ((Send(b"HTTP/1.1 200 OK\r\ncontent-"), Fin()), 502),
    "silent past the time-out": ((Pause(30),), 504),
    "silent after a plain head": ((Send(head(200, [("content-length", "5")])), Pause(30)), 504),
    "an error": ((Send(head(500, [("content-length", "0")])),), 500),
    "overloaded": ((Send(head(503, [("content-length", "0"), ("retry-after", "1")])),), 503),
    "a stream cut": ((Send(sse_head() + chunk(delta_event())), Pause(0.02), Reset()), 200),
}


@pytest.mark.parametrize("how", READ_AND_LEFT)
@pytest.mark.parametrize("body", [b"{}", b'{"stream":true}'])
def test_a_post_that_was_read_is_not_repeated(door: Door, how: str, body: bytes) -> None:
    """B24: fresh connection, engine alive: one POST there, an error here, whatever became of it."""
    close_pool(door)
    script, status = READ_AND_LEFT[how]
    reply = door.ask(*script, body=body)
    assert reply.status == status
    assert len(door.engine.requests) == 1
    assert not door.line(reply)["resent"]


def close_pool(door: Door) -> None:
    """Make the gateway's next connection a fresh one."""
    door.engine.enqueue(Send(head(200, [("content-length", "2"), ("connection", "close")]) + b"{}"))
    with door.client() as client:
        client.request("POST", CHAT, AUTH, PLAIN)
    door.engine.clear()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Front, FakeVLLM, list[GatewayProcess]]]:
    """nginx before two gateways of one name, both before one engine."""
    keys = write_keys(tmp_path)
    with (
        TinyDNS() as dns,
        FakeVLLM() as engine,
        GatewayProcess(keys, engine.url, first_byte_timeout_s=0.5) as one,
        GatewayProcess(
            keys, engine.url, host="127.0.0.2", port=one.port, first_byte_timeout_s=0.5
        ) as two,
        Front(tmp_path / "front", f"gateway:{one.port}", resolver=f"127.0.0.1:{dns.port}") as front,
    ):
        dns.records["gateway"] = ["127.0.0.1", "127.0.0.2"]
        one.wait_ready()
        engine.wait_until(lambda: once(front.port, "GET", "/readyz").status == 200)
        yield front, engine, [one, two]


def test_two_gateways_behind_one_name(
    pair: tuple[Front, FakeVLLM, list[GatewayProcess]],
) -> None:
    """B24: one POST at the engine in each case; with no gateway left nginx answers in JSON."""
    front, engine, gateways = pair

    def post() -> Reply:
        return once(front.port, "POST", CHAT, AUTH, PLAIN)

    for script, status in (((Fin(),), 502), ((Pause(9),), 504), ((Pause(0.02), Reset()), 502)):
        for number in range(4):  # both gateways have their turn
            engine.clear()
            engine.enqueue(Pause(0.01), *script)
            reply = post()
            assert (reply.status, len(engine.requests)) == (status, 1), number
            assert reply.json()["error"]["message"]
    assert all(gateway.events() for gateway in gateways)
    for gateway in gateways:
        gateway.process.kill()
        gateway.process.wait(5)
    for _ in range(4):
        reply = post()
        assert (reply.status, reply.header("content-type")) == (502, "application/json")
        assert reply.json()["error"]["code"] == "gateway_unreachable"
        assert int(reply.header("retry-after") or 0) > 0
