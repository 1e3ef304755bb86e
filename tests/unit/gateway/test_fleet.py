"""Who serves what, what no name means, and what is said of a name that nobody serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.errors import ModelNotAllowed, ModelNotFound, NotReady, Overloaded
from gateway.gate import Wait
from gateway.upstream.engine import GONE_S, Engine, View
from gateway.upstream.exchange import Wish
from gateway.upstream.fleet import Fleet
from gateway.watchdog import Watchdog

NOW = [0.0]


@pytest.fixture(autouse=True)
def _clock() -> None:
    NOW[0] = 0.0


def engine(
    index: int, ready: bool, *names: str, phase: str | None = None, told: object = None
) -> Engine:
    status = {"phase": phase, "served_model_names": told} if phase else None
    models = tuple({"id": name} for name in names or (f"m{index}", "default"))
    view = View(ready=ready, reachable=ready or bool(phase), models=models, status=status)
    return Engine(index, f"http://e{index}:8000", lambda: NOW[0], Watchdog(), view)


@pytest.mark.parametrize(
    ("engines", "phase"),
    [
        ((engine(0, False), engine(1, True)), "ready"),
        ((engine(0, False, phase="loading"),), "loading"),
        ((engine(0, False),), "waiting"),
        ((engine(0, False, phase="ready"),), "waiting"),
        ((engine(0, False, phase="ready"), engine(1, False, phase="failed")), "failed"),
    ],
)
def test_the_phase_of_the_fleet(engines: tuple[Engine, ...], phase: str) -> None:
    assert Fleet(engines).phase == phase


def test_models_of_ready_engines_come_once() -> None:
    fleet = Fleet((engine(0, True), engine(1, True), engine(2, False)))
    assert [model["id"] for model in fleet.models] == ["m0", "default", "m1"]
    assert fleet.default_model == "m0"


def indices(fleet: Fleet, model: str | None) -> list[int]:
    return [each.index for each in fleet.serving(Wish(model))]


def test_a_name_goes_to_the_engines_that_list_it() -> None:
    fleet = Fleet(
        (engine(0, True, "a", "shared"), engine(1, True, "b", "shared"), engine(2, False, "b"))
    )
    assert indices(fleet, "a") == [0]
    assert indices(fleet, "b") == [1, 2]
    assert indices(fleet, "shared") == [0, 1]
    assert indices(fleet, None) == [0]
    assert [fleet.label(name) for name in ("b", "shared", "c", None)] == [
        *("b", "shared", "other", "a")
    ]
    assert (fleet.several("a"), fleet.several("b"), fleet.several("c")) == (False, True, True)
    assert not Fleet((engine(0, True),)).several("c")


def test_default_is_one_model_where_engines_have_several() -> None:
    """Every engine has that name; a conversation must not meet two models under it."""
    fleet = Fleet((engine(0, True), engine(1, True), engine(2, True, "m0", "default")))
    assert indices(fleet, "default") == indices(fleet, None) == [0, 2]
    named_otherwise = Fleet((engine(0, True, "a"), engine(1, True)))
    assert (indices(named_otherwise, None), indices(named_otherwise, "default")) == ([0], [1])


def test_a_name_that_nobody_serves_is_not_found_once_somebody_is_ready() -> None:
    fleet = Fleet((engine(0, False, "a"), engine(1, True, "b")))
    with pytest.raises(ModelNotFound) as caught:
        fleet.choose(Wish("c"))
    assert caught.value.message == "The model `c` does not exist. Served: b."
    with pytest.raises(ModelNotFound, match="Served: none"):
        fleet.choose(Wish("c", allowed=frozenset({"c", "d"})))
    assert fleet.choose(Wish("a")) is None
    assert Fleet((engine(0, False, "a"),)).choose(Wish("c")) is None


def test_a_key_may_not_use_a_default_that_is_not_its_own() -> None:
    wish = Wish(allowed=frozenset({"m1"}))
    with pytest.raises(ModelNotAllowed):
        Fleet((engine(0, True), engine(1, True))).choose(wish)
    chosen = Fleet((engine(1, True), engine(0, True))).choose(wish)
    assert chosen is not None
    assert chosen.index == 1
    nothing_known = Engine(0, "http://e0:8000", lambda: 0.0, Watchdog())
    assert Fleet((nothing_known,)).choose(wish) is None


def test_an_engine_that_starts_has_the_names_that_its_launcher_tells() -> None:
    starting = engine(0, False, "old", phase="loading", told=["new", 7, "default"])
    fleet = Fleet((starting, engine(1, True, "b")))
    assert [indices(fleet, name) for name in ("new", "old", "default")] == [[0], [0], [0]]
    assert fleet.default_model == "new"
    fleet.update(starting, replace(starting.view, ready=True, models=({"id": "new"},)))
    assert indices(fleet, "new") == [0]
    with pytest.raises(ModelNotFound, match="Served: new, b"):
        fleet.serving(Wish("old"))


def test_the_default_is_held_for_an_engine_that_may_come_back() -> None:
    first, second = engine(0, True), engine(1, True)
    fleet = Fleet((first, second))
    fleet.update(first, replace(first.view, ready=False))
    assert fleet.choose(Wish()) is None
    fleet.update(first, replace(first.view, reachable=False))
    NOW[0] = GONE_S - 1
    fleet.update(first, first.view)
    assert fleet.default_model == "m0"
    NOW[0] = GONE_S
    fleet.update(first, first.view)
    assert (fleet.default_model, fleet.choose(Wish())) == ("m1", second)
    assert indices(fleet, "m0") == [0]  # a crash: it may still come back


def test_the_default_moves_on_from_an_engine_that_is_drained() -> None:
    first, second = engine(0, True), engine(1, True)
    fleet = Fleet((first, second))
    draining = replace(first.view, ready=False, status={"phase": "draining"})
    fleet.update(first, draining)
    assert fleet.choose(Wish()) is fleet.choose(Wish("default")) is second
    assert fleet.choose(Wish("m0")) is None
    fleet.update(first, replace(draining, reachable=False, status=None))
    assert fleet.choose(Wish()) is second
    NOW[0] = GONE_S
    fleet.update(first, first.view)
    with pytest.raises(ModelNotFound, match="Served: m1, default"):
        fleet.choose(Wish("m0"))
    fleet.update(first, replace(draining, ready=True, status={"phase": "ready"}))
    assert fleet.choose(Wish()) is fleet.choose(Wish("m0")) is first


async def soon(*changes: Callable[[], None]) -> None:
    """Each change once everybody else has had a few turns of the loop."""
    for change in changes:
        for _ in range(5):
            await asyncio.sleep(0)
        change()


def test_what_is_held_for_a_model_hears_of_every_change() -> None:
    async def play() -> None:
        first, second = engine(0, False, "a"), engine(1, True, "b")
        fleet = Fleet((first, second), room=2)
        over: list[bool] = []

        async def held() -> None:
            await fleet.wait_for(Wish("a"), Wait(0, 30))
            over.append(True)

        assert fleet.choose(Wish("a")) is None
        await asyncio.gather(
            *(held(), held()),
            soon(
                lambda: fleet.update(second, replace(second.view, models=({"id": "c"},))),
                lambda: over.append(False),
                lambda: fleet.update(first, replace(first.view, ready=True)),
            ),
        )
        assert over == [False, True, True]
        assert fleet.choose(Wish("a")) is first

    asyncio.run(play())


def test_what_is_held_for_a_model_that_is_replaced_is_not_found() -> None:
    async def play() -> None:
        first, second = engine(0, False, "a"), engine(1, True, "b")
        fleet = Fleet((first, second))
        replaced = replace(first.view, ready=True, models=({"id": "d"},))
        with pytest.raises(ModelNotFound, match="Served: d, b"):
            await asyncio.gather(
                fleet.wait_for(Wish("a"), Wait(0, 30)), soon(lambda: fleet.update(first, replaced))
            )

    asyncio.run(play())


def test_what_is_held_for_a_model_waits_within_bounds() -> None:
    async def play() -> None:
        first, second = engine(0, False, "a", phase="loading"), engine(1, True, "b")
        with pytest.raises(Overloaded):
            await Fleet((first, second), room=0).wait_for(Wish("a"), Wait(0, 30))
        fleet = Fleet((first, second), room=1)
        wait = Wait(0, 0.01)
        for _ in range(2):  # the place is free again
            with pytest.raises(NotReady, match=r"of that model is ready \(phase: loading\)"):
                await fleet.wait_for(Wish("a"), wait)
            assert 0.01 <= wait.held_s < 5

    asyncio.run(play())


def test_nobody_ready_is_waited_for_and_then_judged() -> None:
    async def play() -> None:
        first, second = engine(0, False, "a"), engine(1, False, "b")
        fleet = Fleet((first, second))
        told: list[bool] = []
        fleet.follow(told.append)
        await fleet.wait_for(Wish("a"), Wait(0, 0))  # that is for the queue
        with pytest.raises(NotReady, match="No engine is ready"):
            await fleet.wait_ready(0)
        await asyncio.gather(
            fleet.wait_ready(30),
            soon(lambda: fleet.update(second, replace(second.view, ready=True))),
        )
        assert told == [False, True]
        assert [fleet.choose(Wish(name)) for name in "ab"] == [None, second]
        with pytest.raises(ModelNotFound):
            fleet.choose(Wish("c"))

    asyncio.run(play())
