"""One of two engines is killed under load, again and again: only what had begun is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from common.crowd import Result, enter, until
from common.events import the_error
from common.load import REQUEST, counted, idle
from common.net import free_port
from common.rawhttp import build
from common.script import DONE, completion, delta_event, finish_event
from common.servers import AUTH, CHAT, PlainGateway, base_environment, wait_until
from common.servers import ROOT as REPOSITORY

CLIENTS, KILLS, TOKENS = 64, 6, 12
UNARY = build("POST", CHAT, {**AUTH, "connection": "close"}, {"stream": False})
ANSWER = json.dumps(completion()).encode()
EVENTS = [
    delta_event("", role="assistant"),
    *(delta_event(f"word{number} ") for number in range(TOKENS)),
    finish_event() + DONE,
]
WHOLE = b"".join(EVENTS)


@dataclass
class EngineProcess:
    """A scripted engine that can be killed: a process of its own."""

    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "common.fake_vllm", "--port", str(self.port)]
        command += ["--tokens", str(TOKENS), "--interval-ms", "20", "--think-ms", "200"]
        path = f"{REPOSITORY}/tests"
        self.process = subprocess.Popen(
            command, env={**base_environment(), "PYTHONPATH": path}, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"fake vLLM on")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running() -> Iterator[EngineProcess]:
    engine = EngineProcess()
    engine.start()
    try:
        yield engine
    finally:
        if engine.process.returncode is None:
            engine.kill()


@dataclass
class Crowd:
    """Clients that ask, read, and ask again, until told to stop."""

    port: int
    stopped: bool = False
    streams: list[Result] = field(default_factory=list)
    unary: list[Result] = field(default_factory=list)
    live: dict[int, Result] = field(default_factory=dict)

    async def client(self, number: int) -> None:
        request, seen = (REQUEST, self.streams) if number % 2 else (UNARY, self.unary)
        while not self.stopped:
            visitor = await enter(self.port, request)
            self.live[number] = visitor.result
            await visitor.ended
            seen.append(visitor.result)

    @property
    def begun(self) -> int:
        """Streams that are in their middle."""
        return sum(1 for one in self.live.values() if EVENTS[3] in one.body and not one.whole)


@pytest.fixture
def engines() -> Iterator[list[EngineProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running()) for _ in range(2)]


def at(gateway: PlainGateway, index: int) -> float:
    return counted(gateway, "gateway_upstream_requests_in_flight", upstream=str(index))


def is_in(gateway: PlainGateway, index: int) -> bool:
    ready = counted(gateway, "gateway_upstream_ready", upstream=str(index))
    return bool(ready and not counted(gateway, "gateway_upstream_ejected", upstream=str(index)))


def test_killed_engines_lose_only_what_had_begun(engines: list[EngineProcess], keys: Path) -> None:
    """Every other kill meets streams in their middle; each of the others an engine that has just
    come back: its requests are on fresh connections, without a byte of an answer yet.
    """
    upstreams = ",".join(one.url for one in engines)
    with PlainGateway(keys, upstreams, max_concurrency=600) as gateway:
        wait_until(lambda: is_in(gateway, 0) and is_in(gateway, 1), 20)
        crowd = Crowd(gateway.port)
        asyncio.run(play(crowd, engines, gateway))
        wait_until(lambda: idle(gateway))
        wait_until(lambda: len(lines(gateway)) == len(crowd.streams) + len(crowd.unary))
        judge(crowd, lines(gateway))


async def play(crowd: Crowd, engines: list[EngineProcess], gateway: PlainGateway) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(crowd.client(number))
        await until(lambda: len(crowd.streams) > CLIENTS and len(crowd.unary) > CLIENTS)
        for turn in range(KILLS):
            index = turn // 2 % 2
            if turn % 2 == 0:
                await until(lambda: crowd.begun > CLIENTS // 4)
            engines[index].kill()
            await asyncio.sleep(0.2)
            await asyncio.to_thread(engines[index].start)
            await asyncio.to_thread(wait_until, lambda i=index: at(gateway, i) > CLIENTS // 8, 20)
        crowd.stopped = True


def lines(gateway: PlainGateway) -> list[dict[str, object]]:
    return [line for line in gateway.events() if line["route"] == CHAT]


def judge(crowd: Crowd, said: list[dict[str, object]]) -> None:
    for one in crowd.unary:
        assert (one.status, one.whole) == (200, True), one
        assert bytes(one.body) == ANSWER
    complete = {WHOLE, WHOLE.removesuffix(DONE)}  # its finish_reason had come
    cut = [one for one in crowd.streams if bytes(one.body) not in complete]
    for one in cut:
        assert (one.status, one.whole) == (200, True), one
        assert the_error(bytes(one.body))["code"] == "upstream_error"
        assert WHOLE.startswith(bytes(one.body).rpartition(b"data: ")[0]), one
    outcomes = [line["outcome"] for line in said]
    assert outcomes.count("truncated") == len(cut)
    assert outcomes.count("ok") == len(said) - len(cut)
    assert cut
    assert sum(1 for line in said if line["resent"]) >= KILLS
