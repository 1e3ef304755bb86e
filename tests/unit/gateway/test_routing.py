"""Rendezvous hashing with bounded loads: stable, moves little, spreads, never piles up."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from itertools import permutations, product

import pytest

from gateway.upstream.engine import Engine, View
from gateway.upstream.routing import FEW, bound, choose, ranked
from gateway.watchdog import Watchdog


def fleet(count: int, *in_flight: int) -> list[Engine]:
    def one(index: int) -> Engine:
        view = View(ready=True, models=({"id": "m"},))
        load = in_flight[index] if index < len(in_flight) else 0
        url = f"http://vllm-{index}:8000"
        return Engine(index, url, lambda: 0.0, Watchdog(), view, load)

    return [one(index) for index in range(count)]


def conversations(count: int) -> list[bytes]:
    return [blake2b(b"%d" % number, digest_size=16).digest() for number in range(count)]


def chosen(engines: list[Engine], conversation: bytes = b"") -> int:
    engine = choose(engines, conversation)
    assert engine is not None
    return engine.index


WRITTEN = [1, 1, 2, 3, 3, 1, 1, 2]


def test_without_a_conversation_the_least_loaded_is_chosen() -> None:
    assert chosen(fleet(3, 3, 1, 1)) == 1
    assert chosen(fleet(1, 99), b"c") == 0
    assert choose([], b"c") is None


def test_the_same_conversation_in_every_process() -> None:
    """Written down: a worker with another hash seed, or another release, must agree."""
    engines = fleet(4)
    assert [chosen(engines, each) for each in conversations(8)] == WRITTEN
    for order in permutations(engines):
        engines = list(order)
        assert [chosen(engines, each) for each in conversations(8)] == WRITTEN


def test_conversations_are_spread() -> None:
    counts = Counter(chosen(fleet(4), each) for each in conversations(4000))
    assert all(850 < counts[index] < 1150 for index in range(4))


def test_an_engine_that_leaves_takes_only_its_own_along() -> None:
    engines = fleet(4)
    before = {each: chosen(engines, each) for each in conversations(2000)}
    without = {each: chosen(engines[:2] + engines[3:], each) for each in before}
    assert all(without[each] == index for each, index in before.items() if index != 2)
    moved = Counter(without[each] for each, index in before.items() if index == 2)
    assert all(moved[index] > 100 for index in (0, 1, 3))  # to all others, not to one
    assert {each: chosen(engines, each) for each in before} == before


def test_a_new_engine_takes_only_its_share() -> None:
    before = {each: chosen(fleet(3), each) for each in conversations(3000)}
    after = {each: chosen(fleet(4), each) for each in before}
    moved = [after[each] for each in before if after[each] != before[each]]
    assert set(moved) == {3}
    assert 600 < len(moved) < 900


def test_a_shared_prompt_fills_one_engine_only_so_far() -> None:
    engines = fleet(4)
    same = conversations(1)[0]
    for number in range(1, 1001):
        engines[chosen(engines, same)].in_flight += 1
        assert max(each.in_flight for each in engines) <= 1.25 * number / 4 + FEW + 1
    first = ranked(engines, same)[0]
    assert first.in_flight == max(each.in_flight for each in engines)


def test_a_busy_engine_gets_its_conversations_back() -> None:
    engines = fleet(3)
    same = conversations(1)[0]
    first, second, third = ranked(engines, same)
    first.in_flight = 40
    assert choose(engines, same) is second
    second.in_flight = 40
    assert choose(engines, same) is third
    first.in_flight = second.in_flight = 0
    assert choose(engines, same) is first


def test_an_ejected_engine_is_passed_over_while_there_is_another() -> None:
    engines = fleet(3)
    same = conversations(1)[0]
    first, second, third = ranked(engines, same)
    first.ejected = True
    assert choose(engines, same) is second
    assert choose([first, third]) is third
    assert choose([first], same) is first
    for engine in engines:
        engine.ejected = True
    assert choose(engines, same) is first


@pytest.mark.parametrize("count", [2, 3, 6])
def test_one_is_always_below_the_bound(count: int) -> None:
    for loads in product((0, 1, 4000), repeat=count):
        assert min(loads) < bound(loads)
        assert choose(fleet(count, *loads), b"c") is not None
