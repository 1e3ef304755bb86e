"""A swap, as the gateway sees it: the engine drains, is gone, and another one comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from common.fake_vllm import FakeVLLM
from common.rawhttp import Client, build
from common.script import Pause, answer
from common.servers import AUTH, CHAT, GatewayProcess, wait_until

Start = Callable[..., GatewayProcess]
READY = {"phase": "ready", "ready": True}
DRAINING = {"phase": "draining", "ready": False}


@dataclass
class Stand:
    """An engine and the page of its launcher."""

    engine: FakeVLLM
    page: FakeVLLM

    def says(self, status: dict[str, object]) -> None:
        self.page.behaviour.script = answer(status)

    @property
    def most_at_once(self) -> int:
        """Requests that were at the engine together, answered or not."""
        moments = [(one.at, 1) for one in self.engine.requests]
        moments += [(one.answered_at, -1) for one in self.engine.requests if one.answered_at]
        running = most = 0
        for _, step in sorted(moments):
            running += step
            most = max(most, running)
        return most


@pytest.fixture
def stand() -> Iterator[Stand]:
    with FakeVLLM() as engine, FakeVLLM() as page:
        stand = Stand(engine, page)
        stand.says(READY)
        yield stand


def counts(gateway: GatewayProcess) -> tuple[int, int]:
    found = gateway.status()["gateway"]
    return found["in_flight"], found["queued"]


def ask(gateway: GatewayProcess, stack: ExitStack) -> Client:
    client = stack.enter_context(gateway.client(timeout_s=30))
    client.send(build("POST", CHAT, AUTH, b"{}"))
    return client


def status_of(client: Client) -> int:
    return client.read_body(client.read_head()).status


@pytest.mark.parametrize("bound", [{"max_concurrency": 1}, {}])
def test_who_queued_before_a_swap_outlives_it(
    start: Start, stand: Stand, bound: dict[str, int]
) -> None:
    """The swap takes far longer than the queue time that was left when the engine went."""
    stand.says({**READY, "max_num_seqs": 1})
    gateway = start(
        stand.engine.url, status_urls=stand.page.url, queue_timeout_s=2, hold_s=60, **bound
    )
    gateway.wait_ready()
    stand.engine.enqueue(Pause(1.5), *answer())
    with ExitStack() as stack:
        running = ask(gateway, stack)
        wait_until(lambda: counts(gateway) == (1, 0))
        queued = ask(gateway, stack)
        wait_until(lambda: counts(gateway) == (1, 1))
        stand.says(DRAINING)
        assert status_of(running) == 200
        later = ask(gateway, stack)
        time.sleep(2.5)
        assert counts(gateway) == (0, 2)
        assert len(stand.engine.requests) == 1
        stand.says({**READY, "max_num_seqs": 1})
        assert [status_of(queued), status_of(later)] == [200, 200]


def test_what_is_held_beyond_the_queue_is_refused_at_once(start: Start, stand: Stand) -> None:
    """And told why; past the hold the rest is, too."""
    stand.says(DRAINING)
    gateway = start(stand.engine.url, status_urls=stand.page.url, queue_size=3, hold_s=3)
    wait_until(lambda: gateway.status()["phase"] == "draining")
    with ExitStack() as stack:
        held = [ask(gateway, stack) for _ in range(3)]
        wait_until(lambda: counts(gateway) == (0, 3))
        began = time.monotonic()
        full = gateway.chat()
        assert time.monotonic() - began < 1
        late = [client.read_body(client.read_head()) for client in held]
    assert (full.status, full.json()["error"]["code"]) == (503, "overloaded")
    assert {(one.status, one.json()["error"]["code"]) for one in late} == {(503, "not_ready")}
    for reply in (full, *late):
        assert "phase: draining" in reply.json()["error"]["message"]
        assert reply.header("retry-after") == "10"


def test_a_smaller_engine_is_not_flooded_with_what_was_held(start: Start, stand: Stand) -> None:
    """40 wait, some of them since the larger engine went away with them; the next one takes 4."""
    stand.says({**READY, "max_num_seqs": 32})
    gateway = start(stand.engine.url, status_urls=stand.page.url, hold_s=60)
    gateway.wait_ready()
    stand.engine.behaviour.script = (Pause(60),)
    with ExitStack() as stack:
        clients = [ask(gateway, stack) for _ in range(20)]
        stand.engine.wait_until(lambda: len(stand.engine.requests) == 20)
        stand.says(DRAINING)
        stand.engine.stop_listening(reset=True)
        wait_until(lambda: counts(gateway) == (0, 20))
        clients += [ask(gateway, stack) for _ in range(20)]
        wait_until(lambda: counts(gateway) == (0, 40))
        stand.engine.clear()
        stand.engine.behaviour.script = (Pause(0.02), *answer())
        stand.engine.listen()
        stand.says({**READY, "max_num_seqs": 4})
        assert [status_of(client) for client in clients] == [200] * 40
    assert stand.most_at_once == 4


def test_a_launcher_is_heard_while_its_engine_is_slow(start: Start, stand: Stand) -> None:
    """An API server that is busy answers no look for seconds, and must get no new request."""
    gateway = start(stand.engine.url, status_urls=stand.page.url, hold_s=60)
    gateway.wait_ready()
    stand.engine.deafen()
    stand.says(DRAINING)
    wait_until(lambda: gateway.status()["phase"] == "draining", 2.5)
    assert gateway.status()["ready"] is False
