"""When one of several engines is passed over, and when it is back."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from gateway.upstream.ejection import (
    BROKEN,
    CALM_S,
    FIRST_S,
    LONGEST_S,
    RETURN,
    Standing,
    broke,
    could_serve,
    looked,
    worked,
)

IN = Standing(ready=True, looks=RETURN)


def looks(standing: Standing, ready: Iterable[bool], now: float = 0) -> list[bool]:
    """Whether it is out after each look."""
    found = []
    for each in ready:
        standing = looked(standing, each, now)
        found.append(standing.out is not None)
    return found


def breaking(standing: Standing, times: int = BROKEN, now: float = 0) -> Standing:
    for _ in range(times):
        standing = broke(standing, True, now)
    return standing


def back(standing: Standing, now: float) -> Standing:
    for _ in range(RETURN):
        standing = looked(standing, True, now)
    assert standing.out is None
    return standing


def test_one_that_comes_for_the_first_time_is_in_at_once() -> None:
    assert looks(Standing(), [False, False, True, True]) == [False] * 4


def test_one_that_was_lost_needs_two_good_looks_in_a_row() -> None:
    assert looks(IN, [False, True, True]) == [True, True, False]
    assert looks(IN, [False, True, False, True, False, True, True]) == [*[True] * 6, False]


def test_answers_that_break_in_a_row_eject_and_one_that_works_counts_anew() -> None:
    almost = breaking(IN, BROKEN - 1)
    assert almost.out is None
    assert breaking(worked(almost), BROKEN - 1).out is None
    assert broke(almost, True, 0).out == "broke"


def test_the_last_one_that_could_serve_is_not_ejected() -> None:
    standing = IN
    for _ in range(100):
        standing = broke(standing, False, 0)
    assert standing.out is None
    assert broke(standing, True, 0).out == "broke"  # as soon as another one works


def test_it_is_back_by_itself_when_its_time_is_over_and_it_looks_good() -> None:
    out = breaking(IN, now=100)
    assert looks(out, [True] * 9, 100 + FIRST_S - 0.01) == [True] * 9
    assert looks(out, [True, True], 100 + FIRST_S) == [True, False]
    assert looks(out, [True, False, True, True], 100 + FIRST_S) == [True, True, True, False]


def test_once_back_it_is_on_trial() -> None:
    returned = back(breaking(IN), FIRST_S)
    assert broke(returned, True, FIRST_S).out == "broke"
    assert broke(worked(returned), True, FIRST_S).out is None


def test_each_time_is_twice_as_long_up_to_the_longest() -> None:
    standing, now, lengths = IN, 1000.0, []
    for _ in range(8):
        standing = breaking(standing, now=now)
        lengths.append(standing.until - now)
        now = standing.until
        standing = back(standing, now)
    assert lengths == [1, 2, 4, 8, 16, LONGEST_S, LONGEST_S, LONGEST_S]
    calm = breaking(worked(standing), now=now + CALM_S)
    assert calm.until - now - CALM_S == FIRST_S


def test_while_it_is_out_its_late_answers_change_nothing() -> None:
    out = breaking(IN)
    late = breaking(out, 50, now=0.5)
    assert (late.out, late.until, late.times) == (out.out, out.until, out.times)
    assert breaking(looked(IN, False, 0)).times == 0


def test_one_that_broke_and_then_went_comes_back_as_a_new_one() -> None:
    gone = looked(breaking(IN), False, 0.5)
    assert gone == Standing(out="gone")
    assert looks(gone, [True, True], 0.6) == [True, False]
    assert breaking(back(gone, 0.6), BROKEN - 1).out is None


@pytest.mark.parametrize(
    ("standing", "models", "could"),
    [
        (IN, ["m"], True),
        (IN, ["other"], False),
        (breaking(IN), ["m"], False),
        (looked(IN, False, 0), ["m"], False),
        (Standing(), ["m"], False),
    ],
)
def test_who_could_serve_instead(standing: Standing, models: list[str], could: bool) -> None:
    assert could_serve(["m", "n"], [(standing, models)]) is could


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_it_comes_back_within_the_longest_time(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    standing, now = Standing(), 0.0
    for _ in range(500):
        now += dice.random()
        move = dice.choice(["look", "look", "lost", "broke", "worked"])
        if move == "broke":
            standing = broke(standing, dice.random() < 0.8, now)
        elif move == "worked":
            standing = worked(standing)
        else:
            standing = looked(standing, move == "look", now)
        assert standing.until - now <= LONGEST_S
    assert looks(standing, [True] * RETURN, now + LONGEST_S)[-1] is False
