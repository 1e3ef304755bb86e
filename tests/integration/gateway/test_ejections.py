"""Several engines: one whose answers break is passed over and comes back by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from common.fake_vllm import FakeVLLM
from common.load import counted
from common.script import Fin, Step, answer
from common.servers import GatewayProcess, wait_until

from gateway.upstream.ejection import BROKEN

Start = Callable[..., GatewayProcess]
BROKEN_ANSWERS: dict[str, tuple[Step, ...]] = {
    "closed": (Fin(),),
    "500": answer({"error": "boom"}, 500),
    "no end": answer(b"data: {}\n\n", content_type="text/event-stream"),
}


@dataclass
class Pair:
    """Two engines; requests one after the other go to the first as long as it is in."""

    first: FakeVLLM
    second: FakeVLLM
    gateway: GatewayProcess

    def ask(self) -> int:
        return self.gateway.chat(b"{}").status

    def ready(self) -> None:
        wait_until(lambda: self.views() == [1, 1])

    def views(self) -> list[float]:
        return [counted(self.gateway, "gateway_upstream_ready", upstream=str(n)) for n in (0, 1)]

    def ejections(self, cause: str) -> float:
        name = "gateway_upstream_ejections_total"
        return counted(self.gateway, name, upstream="0", cause=cause)

    @property
    def ejected(self) -> bool:
        return counted(self.gateway, "gateway_upstream_ejected", upstream="0") == 1


@pytest.fixture
def pair(start: Start) -> Iterator[Pair]:
    with FakeVLLM() as first, FakeVLLM() as second:
        pair = Pair(first, second, start(f"{first.url},{second.url}"))
        pair.ready()
        yield pair


@pytest.mark.parametrize("how", BROKEN_ANSWERS)
def test_one_whose_answers_break_is_ejected_and_returns(pair: Pair, how: str) -> None:
    """Its health says 200 all the while; of its failures only so many reach clients."""
    pair.first.behaviour.script = BROKEN_ANSWERS[how]
    for _ in range(BROKEN):
        pair.ask()
    assert pair.ejected
    assert [pair.ask() for _ in range(5)] == [200] * 5
    assert (len(pair.first.requests), len(pair.second.requests)) == (BROKEN, 5)
    assert (pair.ejections("broke"), pair.ejections("gone")) == (1, 0)
    assert pair.views() == [1, 1]
    pair.first.behaviour.script = None
    wait_until(lambda: not pair.ejected, 10)
    assert pair.ask() == 200
    assert len(pair.first.requests) == BROKEN + 1
    said = [line["message"] for line in pair.gateway.events("gateway")]
    assert any("upstream 0 is passed over" in line for line in said)
    assert "upstream 0 is back" in said


def test_one_that_is_back_and_still_broken_costs_one_request(pair: Pair) -> None:
    pair.first.behaviour.script = (Fin(),)
    for _ in range(BROKEN):
        pair.ask()
    wait_until(lambda: not pair.ejected, 10)
    assert pair.ask() == 502
    assert pair.ejected
    assert pair.ask() == 200


def test_no_outage_is_made_of_broken_answers(pair: Pair) -> None:
    """Both break: never are both ejected, and each request still goes to an engine."""
    pair.first.behaviour.script = pair.second.behaviour.script = (Fin(),)
    for _ in range(3 * BROKEN):
        assert pair.ask() == 502
        assert counted(pair.gateway, "gateway_upstream_ejected") < 2
    assert counted(pair.gateway, "gateway_upstream_ejections_total") > 0
    pair.second.stop_listening(reset=True)
    pair.first.behaviour.script = None
    assert [pair.ask() for _ in range(3)] == [200] * 3  # out or not: it is the only one there


def test_a_full_engine_and_a_bad_request_eject_nobody(pair: Pair) -> None:
    for status in (400, 404, 501, 503):
        pair.first.behaviour.script = answer({"error": "no"}, status)
        for _ in range(2 * BROKEN):
            pair.ask()
    assert not pair.ejected
    assert not pair.second.requests


def test_one_that_crashed_is_back_after_two_good_looks(pair: Pair) -> None:
    pair.first.stop_listening(reset=True)
    assert pair.ask() == 200
    assert pair.ejected
    assert pair.ejections("gone") == 1
    pair.first.listen()
    wait_until(lambda: not pair.ejected, 10)
    looks = [one for one in pair.first.log if one.target == "/health"]
    assert pair.ask() == 200
    assert looks[-1].at - looks[-2].at > 0.9
