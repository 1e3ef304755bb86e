"""Two real engines behind the gateway find conversations in their prefix caches as one would."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from common.engine import Running, embedded_model
from common.rawhttp import once
from common.servers import AUTH, CHAT, PlainGateway, wait_until, write_keys

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CONVERSATIONS = 20
TURNS = 6
CLIENTS = 8
# Each question fills some blocks of 16 tokens, and no two have a beginning in common.
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty")
SYSTEM = {"role": "system", "content": "You keep lists of words. Answer in one short sentence."}


@pytest.fixture(scope="module")
def engines(
    engine_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Running]]:
    """Started side by side, each on its part of the processors."""
    cores = sorted(os.sched_getaffinity(0))

    def start(index: int) -> Running:
        folder = tmp_path_factory.mktemp(f"engine-{index}")
        model = embedded_model(engine_python, folder)
        limits = {"MAX_MODEL_LEN": "2048", "MAX_NUM_SEQS": "16"}
        bind = ",".join(map(str, cores[index::2] or cores))
        return Running(engine_python, folder, model, VLLM_CPU_OMP_THREADS_BIND=bind, **limits)

    pair = start(0), start(1)
    try:
        for running in pair:
            running.until_ready()
        yield pair
    finally:
        with ThreadPoolExecutor() as both:
            list(both.map(Running.stop, pair))


def question(number: int, turn: int) -> dict[str, str]:
    words = (WORDS[(number * 7 + turn * 3 + step * (turn + 1)) % 10] for step in range(30))
    return {"role": "user", "content": f"List {number}, part {turn}: {' '.join(words)}."}


def talk(gateway: PlainGateway, number: int, salt: str) -> None:
    """One conversation, turn by turn, with the answers that it got. `salt`: whose blocks it may
    find in a cache.
    """
    said: list[dict[str, Any]] = [SYSTEM]
    for turn in range(TURNS):
        said.append(question(number, turn))
        body = {"messages": said, "max_tokens": 4, "temperature": 0, "cache_salt": salt}
        with gateway.client(timeout_s=120) as client:
            reply = client.request("POST", CHAT, AUTH, body)
        assert reply.status == 200, reply.body
        said.append(reply.json()["choices"][0]["message"])


def counted(running: Running, name: str) -> float:
    port = int(running.engine.rsplit(":", 1)[1])
    lines = once(port, "GET", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}_total{{"))


def hits(gateway: PlainGateway, engines: tuple[Running, ...], salt: str) -> list[float]:
    """Tokens that each engine found in its prefix cache while all conversations were held."""
    before = [counted(running, "prefix_cache_hits") for running in engines]
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda number: talk(gateway, number, salt), range(CONVERSATIONS)))
    after = [counted(running, "prefix_cache_hits") for running in engines]
    return [now - then for now, then in zip(after, before, strict=True)]


def behind(gateway: PlainGateway, engines: tuple[Running, ...], salt: str) -> list[float]:
    with gateway:
        wait_until(lambda: all(each["ready"] for each in gateway.status()["engines"]))
        return hits(gateway, engines, salt)


def test_two_engines_find_what_one_would(engines: tuple[Running, Running], tmp_path: Path) -> None:
    keys = write_keys(tmp_path)
    one = behind(PlainGateway(keys, engines[0].engine), engines[:1], "one")
    urls = ",".join(running.engine for running in engines)
    two = behind(PlainGateway(keys, urls), engines, "two")
    figures = f"tokens found in the prefix caches: {one} with one engine, {two} with two"
    assert sum(one) > CONVERSATIONS * TURNS * 16, figures
    assert all(two), figures  # both took part
    assert sum(two) >= 0.9 * sum(one), figures
