"""Crowds that idle, read slowly, stay or leave: memory bounded, nobody slowed, nothing left."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from common.crowd import Manner, enter, results_of, until, visit, visit_all
from common.fake_vllm import FakeVLLM
from common.front import Front
from common.load import EVENT, REQUEST, idle, lasting, let_go
from common.rawhttp import once
from common.script import Pause, Repeat, Send, chunk, sse_head
from common.servers import AUTH, CHAT, PlainGateway, wait_until

IDLE, SLOW = 2000, 500
# By itself some 60 MiB. Of an answer that nobody takes it holds one read of at most 256 KiB; what
# else was sent waits in the kernel and in the engine.
CEILING = 200 << 20


@pytest.fixture(scope="module", autouse=True)
def files() -> Iterator[None]:
    """Room for thousands of sockets, here and in what is started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def silent(port: int, size: int) -> Iterator[None]:
    """Connections on which nothing is said."""
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(size)]
    try:
        yield
    finally:
        for one in held:
            one.close()


def test_two_thousand_idle_and_five_hundred_slow(
    engine: FakeVLLM, gateway: PlainGateway, tmp_path: Path
) -> None:
    """Rule 5: memory stays bounded, and streams of others go on at their pace."""
    big = chunk(b"data: " + b"x" * 16_000 + b"\n\n")
    engine.behaviour.script = (Send(sse_head()), Repeat(big, 32, 0), Pause(60))
    with (
        Front(tmp_path / "front", f"127.0.0.1:{gateway.port}") as front,
        silent(front.port, IDLE // 2),
        silent(gateway.port, IDLE // 2),
    ):
        engine.run(_slow_and_quick(engine, gateway, front))
    wait_until(partial(idle, gateway))
    engine.wait_until(partial(let_go, engine), 3)
    wait_until(lambda: gateway.open_files < 100)


async def _slow_and_quick(engine: FakeVLLM, gateway: PlainGateway, front: Front) -> None:
    stuck = Manner(receive_buffer=4096, pause_s=60)
    slow = [await enter(gateway.port, REQUEST, stuck) for _ in range(SLOW)]
    await until(lambda: len(engine.requests) == SLOW)
    await _settled(gateway)
    assert gateway.rss < CEILING, f"{gateway.rss >> 20} MiB"
    engine.behaviour.script, body = lasting(1)
    began = time.monotonic()
    quick = [visit(port, REQUEST) for port in (gateway.port, front.port) for _ in range(5)]
    for one in await asyncio.gather(*quick):
        assert bytes(one.body) == body
        assert one.ended_at - began < 4
    for visitor in slow:
        visitor.leave()
    await results_of(slow)


async def _settled(gateway: PlainGateway) -> None:
    """Wait until memory grows no more."""
    before = 0
    async with asyncio.timeout(15):
        while gateway.rss - before > 1 << 20:
            before = gateway.rss
            await asyncio.sleep(0.5)


def test_a_hundred_and_thirty_streams_at_once(engine: FakeVLLM, gateway: PlainGateway) -> None:
    """B18: all start together, since no pool has a hundred places, and all end whole."""
    engine.behaviour.script, body = lasting(2)
    results = engine.run(visit_all(gateway.port, REQUEST, 130))
    assert [bytes(one.body) for one in results] == [body] * 130
    last_start = max(one.at for one in engine.requests)
    assert last_start < min(one.ended_at for one in results)


CANCELS = 500


@pytest.mark.parametrize("engine_is", ["slow", "deaf"])
def test_five_hundred_cancels(engine: FakeVLLM, gateway: PlainGateway, engine_is: str) -> None:
    """B18: cancelled after 0 to 20 ms, while connecting too; the next request is served at once."""
    engine.behaviour.script = (Pause(30),)
    engine.behaviour.accept_delay_s = 0.01
    if engine_is == "deaf":
        engine.deafen()
    engine.run(_cancels(gateway.port))
    if engine_is == "deaf":
        engine.stop_listening()
        engine.listen()
    wait_until(partial(idle, gateway), 2)
    engine.wait_until(lambda: engine.open_connections == 0, 3)  # our probes come and go
    engine.behaviour.script, body = lasting(0.1)
    began = time.monotonic()
    reply = once(gateway.port, "POST", CHAT, AUTH, b'{"stream":true}')
    assert reply.body == body
    assert time.monotonic() - began < 1
    lines = [one for one in gateway.events() if one["outcome"] != "ok"]
    assert {one["outcome"] for one in lines} == {"client_left"}
    assert EVENT in reply.body


async def _cancels(port: int) -> None:
    """Fifty at a time; every second one with a reset, every third one twice."""
    for start in range(0, CANCELS, 50):
        manners = [
            Manner(leave_after_s=number % 21 / 1000, how="reset" if number % 2 else "close")
            for number in range(start, start + 50)
        ]
        visitors = [await enter(port, REQUEST, manner) for manner in manners]
        for visitor in visitors[::3]:
            visitor.leave()
            visitor.leave()
        await results_of(visitors)
