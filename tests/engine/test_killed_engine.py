"""One of two real engines is killed under load: the other answers what it had not begun to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from common.engine import Running, embedded_model
from common.events import the_error
from common.rawhttp import Reply
from common.script import DONE
from common.servers import AUTH, CHAT, PlainGateway, wait_until, write_keys

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CLIENTS = 12
ENGINE = {"MAX_MODEL_LEN": "1024", "MAX_NUM_SEQS": "16"}


@pytest.fixture
def engines(engine_python: str, tmp_path: Path) -> Iterator[list[Running]]:
    """Started side by side, each on its part of the processors; the list may be changed."""
    pair: list[Running] = []
    with ExitStack() as stack:
        for index in range(2):
            pair.append(run(engine_python, tmp_path, index))
            stack.callback(lambda index=index: pair[index].kill())
        for running in pair:
            running.until_ready()
        yield pair


def run(python: str, scratch: Path, index: int, ports: tuple[int, int] | None = None) -> Running:
    folder = scratch / f"engine-{index}"
    folder.mkdir(exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    bind = ",".join(map(str, cores[index::2] or cores))
    model = embedded_model(python, folder)
    return Running(python, folder, model, ports, VLLM_CPU_OMP_THREADS_BIND=bind, **ENGINE)


def ask(gateway: PlainGateway, number: int, tokens: int) -> Reply:
    """Every second one streams; two and two have a conversation, and so an engine, in common."""
    said = [{"role": "user", "content": f"Write a long story about the number {number // 2}."}]
    body = {"messages": said, "max_tokens": tokens, "stream": number % 2 == 0, "ignore_eos": True}
    with gateway.client(timeout_s=200) as client:
        return client.request("POST", CHAT, AUTH, body)


def states(gateway: PlainGateway) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.status()["engines"]
    return found


def at(gateway: PlainGateway) -> list[int]:
    return [one["in_flight"] for one in states(gateway)]


def lines(gateway: PlainGateway) -> list[dict[str, Any]]:
    return [line for line in gateway.events() if line["route"] == CHAT]


def takes(gateway: PlainGateway, index: int) -> bool:
    state = states(gateway)[index]
    return bool(state["ready"] and not state["ejected"])


def test_a_killed_engine_loses_only_streams_that_had_begun(
    engine_python: str, engines: list[Running], tmp_path: Path
) -> None:
    urls = ",".join(running.engine for running in engines)
    pages = ",".join(running.status_url for running in engines)
    with (
        PlainGateway(write_keys(tmp_path), urls, status_urls=pages) as gateway,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):
        wait_until(lambda: takes(gateway, 0) and takes(gateway, 1))
        asked = [clients.submit(ask, gateway, number, 150) for number in range(CLIENTS)]
        wait_until(lambda: sum(at(gateway)) == CLIENTS, 30)
        killed = at(gateway).index(max(at(gateway)))
        engines[killed].kill()
        replies = [each.result() for each in asked]
        assert not takes(gateway, killed)
        engines[killed] = run(engine_python, tmp_path, killed, engines[killed].ports)
        engines[killed].until_ready()
        wait_until(lambda: takes(gateway, killed))
        again = list(clients.map(lambda number: ask(gateway, number, 8), range(CLIENTS)))
        wait_until(lambda: len(lines(gateway)) == 2 * CLIENTS)
        said = lines(gateway)
    cut = [reply for reply in replies if b'"error"' in reply.body]
    for reply in (*replies, *again):
        assert (reply.status, reply.whole) == (200, True), reply
    for reply in cut:
        assert the_error(reply.body)["code"] == "upstream_error"
    for reply in replies[::2]:
        assert reply in cut or reply.body.endswith(DONE)
    assert {line["outcome"] for line in said} <= {"ok", "truncated"}
    assert sum(line["outcome"] == "truncated" for line in said) == len(cut)
    assert any(line["resent"] for line in said)
    assert killed in {line["upstream"] for line in said[CLIENTS:]}
