"""A part dies, or is reloaded, under hundreds of streams: each is told, and the next ones work."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest
from common.crowd import Result, enter, results_of, streaming, visit_all
from common.events import the_error
from common.fake_vllm import FakeVLLM
from common.front import Front
from common.load import ENDLESS, EVENT, REQUEST, counted, idle, lasting, let_go
from common.net import free_port
from common.rawhttp import once
from common.script import DONE
from common.servers import CHAT, PlainGateway, wait_until

STREAMS = 200


@pytest.mark.parametrize("through", ["gateway", "nginx"])
def test_a_killed_gateway_and_its_return(
    engine: FakeVLLM, keys: Path, tmp_path: Path, through: str
) -> None:
    """Streams are seen as cut, never as ended; the engine is rid of all; the next one serves."""
    port = free_port()
    engine.behaviour.script = ENDLESS
    with (
        Front(tmp_path / "front", f"127.0.0.1:{port}") as front,
        PlainGateway(keys, engine.url, port=port) as first,
    ):
        door = front.port if through == "nginx" else port
        first.wait_ready()
        for one in engine.run(_kill_under(first, door)):
            assert (one.status, one.whole) == (200, False)
            assert bytes(one.body).startswith(EVENT)
            assert b"[DONE]" not in one.body
        engine.wait_until(partial(let_go, engine), 2)
        assert len(engine.requests) == STREAMS
        engine.behaviour.script = None
        with PlainGateway(keys, engine.url, port=port) as second:
            second.wait_ready()
            for one in engine.run(visit_all(door, REQUEST, 50)):
                assert (one.status, one.whole) == (200, True)
                assert bytes(one.body).endswith(DONE)
            wait_until(lambda: len(second.events()) == 50)
            assert idle(second)
            assert counted(second, "gateway_requests_total", route=CHAT, outcome="ok") == 50
            assert counted(second, "gateway_requests_in_flight") == 0


async def _kill_under(gateway: PlainGateway, door: int) -> list[Result]:
    visitors = await streaming(door, REQUEST, STREAMS)
    gateway.process.kill()
    return await results_of(visitors, 5)


def test_a_killed_engine_and_its_return(engine: FakeVLLM, gateway: PlainGateway) -> None:
    """One error event each; readiness turns; what comes meanwhile is held and then served."""
    engine.behaviour.script = ENDLESS
    results = engine.run(_engine_dies(engine, gateway))
    for one in results[:STREAMS]:
        assert (one.status, one.whole) == (200, True)
        assert the_error(bytes(one.body))["code"] == "upstream_error"
    for one in results[STREAMS:]:
        assert (one.status, one.whole) == (200, True)
        assert bytes(one.body).endswith(DONE)
    wait_until(lambda: len(gateway.events()) == STREAMS + 20)
    outcomes = [line["outcome"] for line in gateway.events()]
    assert (outcomes.count("truncated"), outcomes.count("ok")) == (STREAMS, 20)
    assert idle(gateway)
    assert counted(gateway, "gateway_requests_total", outcome="truncated") == STREAMS


async def _engine_dies(engine: FakeVLLM, gateway: PlainGateway) -> list[Result]:
    visitors = await streaming(gateway.port, REQUEST, STREAMS)
    await engine.stop(reset=True)
    cut = await results_of(visitors, 3)
    held = [await enter(gateway.port, REQUEST) for _ in range(20)]
    unready = asyncio.to_thread(wait_until, lambda: readiness(gateway) == 503, 3)
    await unready
    engine.behaviour.script = None
    await engine.start()
    served = await results_of(held)
    await asyncio.to_thread(wait_until, lambda: readiness(gateway) == 200, 3)
    return cut + served


def readiness(gateway: PlainGateway) -> int:
    return once(gateway.port, "GET", "/readyz").status


def test_nginx_reloaded_under_streams(
    engine: FakeVLLM, gateway: PlainGateway, tmp_path: Path
) -> None:
    """SIGHUP twice: none of a hundred streams is lost, and new ones are served all the while."""
    engine.behaviour.script, body = lasting(3)
    with Front(tmp_path / "front", f"127.0.0.1:{gateway.port}") as front:
        results = engine.run(_reload_under(front))
    assert len(results) == 140
    for one in results:
        assert (one.status, one.whole, bytes(one.body)) == (200, True, body)


async def _reload_under(front: Front) -> list[Result]:
    visitors = await streaming(front.port, REQUEST, 100)
    assert front.process is not None
    for _ in range(2):
        front.process.send_signal(signal.SIGHUP)
        for _ in range(20):
            visitors.append(await enter(front.port, REQUEST))
            await asyncio.sleep(0.02)
    return await results_of(visitors)
