"""The automatic bound: what one look does, and where many looks lead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.admission import Admission
from gateway.bound import UNKNOWN, AutoBound, Seen, Share, few, refused, seen_in, step
from gateway.upstream.engine import Engine, View
from gateway.watchdog import Watchdog

MET = Share(slots=256, most=256, running=100)


@pytest.mark.parametrize(
    ("before", "seen", "after"),
    [
        # nothing told: 1024, or what was known
        (Share(), Seen(), (UNKNOWN, 0)),
        (MET, Seen(), (256, 0)),
        (Share(), Seen(64), (64, 0)),
        (MET, Seen(256, None, 5), (256, 0)),
        # another max_num_seqs: the bound follows, unless it is lower for another reason
        (MET, Seen(512, 10, 0), (512, 0)),
        (Share(40, 256), Seen(512, 40, 3), (40, 0)),
        (Share(40, 256), Seen(8, 8, 0), (8, 0)),
        # none waiting: a few more, up to the most
        (MET, Seen(256, 100, 0), (256, 0)),
        (Share(80, 256, 80, 1), Seen(256, 80, 0), (90, 0)),
        (Share(5, 256), Seen(256, 0, 0), (9, 0)),
        (Share(250, 256), Seen(256, 0, 0), (256, 0)),
        # a few waiting: as it is
        (Share(90, 256, 80, 1), Seen(256, 80, 10), (90, 0)),
        # many waiting: the first time nothing, then down to what runs and a few
        (MET, Seen(256, 100, 156), (256, 1)),
        (replace(MET, full=1), Seen(256, 100, 156), (112, 2)),
        (replace(MET, full=2), Seen(256, 98, 20), (110, 2)),
        # many waiting, and it takes them in
        (replace(MET, full=1), Seen(256, 120, 136), (256, 0)),
        # never to nothing
        (replace(MET, full=1), Seen(256, 0, 50), (4, 2)),
        (Share(2, 2, 2, 1), Seen(2, 2, 90), (2, 2)),
    ],
)
def test_one_look(before: Share, seen: Seen, after: tuple[int, int]) -> None:
    share = step(before, seen)
    assert (share.slots, share.full) == after


@pytest.mark.parametrize(
    ("share", "at_engine", "slots"),
    [
        (MET, 200, 199),
        (MET, 1000, 256),
        (MET, 1, 4),
        (Share(2, 2), 2, 2),
        (Share(50, 256), 200, 50),
    ],
)
def test_an_engine_that_refuses_is_full(share: Share, at_engine: int, slots: int) -> None:
    assert refused(share, at_engine).slots == slots


def simulate(
    share: Share, most: int | None, looks: int, capacity: Callable[[int], int]
) -> list[tuple[int, int]]:
    """An engine with endless demand before it that can run `capacity(look)`: (slots, running) of
    each look. A third of what runs ends between two looks.
    """
    at_engine, seen = 0, []
    for look in range(looks):
        at_engine = max(at_engine, share.slots)
        running = min(at_engine, capacity(look))
        share = step(share, Seen(most, running, at_engine - running))
        seen.append((share.slots, running))
        at_engine -= running // 3
    return seen


@pytest.mark.parametrize("most", [None, 64, 256, 1024])
@pytest.mark.parametrize("capacity", [1, 3, 5, 20, 64, 100, 500, 2000])
@pytest.mark.parametrize("start", [4, 100, 5000])
def test_it_settles_and_the_engine_is_never_idle(
    most: int | None, capacity: int, start: int
) -> None:
    ceiling = most or UNKNOWN
    share = Share(min(start, ceiling), ceiling)
    runs = min(capacity, ceiling)
    seen = simulate(share, most, 120, lambda _: runs)
    last = seen[-30:]
    assert len(set(last)) == 1, "oscillates"
    slots, running = last[0]
    assert running == runs
    assert runs <= slots <= min(ceiling, runs + 2 * few(runs))


@pytest.mark.parametrize("noise", [1, 2, 5])
def test_a_capacity_that_trembles_does_not_make_the_bound_jump(noise: int) -> None:
    seen = simulate(Share(), 256, 200, lambda look: 100 + (look * 7 % (2 * noise + 1)) - noise)
    slots = [slots for slots, _ in seen[60:]]
    assert max(slots) - min(slots) <= few(100)
    assert all(running >= 100 - noise for _, running in seen[60:])


def test_it_follows_the_cache() -> None:
    """Long prompts for a while: few fit. Then short ones again."""
    seen = simulate(Share(256, 256), 256, 100, lambda look: 20 if 10 <= look < 40 else 256)
    slots = [slots for slots, _ in seen]
    assert slots[9] == 256
    assert slots[12] <= 24
    assert slots[39] <= 28
    assert slots[75] == 256


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        (None, Seen()),
        ({}, Seen()),
        ({"max_num_seqs": 64, "running": 3, "waiting": 1}, Seen(64, 3, 1)),
        ({"max_num_seqs": 0, "running": -1, "waiting": "1"}, Seen()),
        ({"max_num_seqs": True, "running": 1.5, "waiting": None}, Seen()),
    ],
)
def test_a_status_is_believed_as_far_as_it_makes_sense(
    status: dict[str, object] | None, seen: Seen
) -> None:
    assert seen_in(status) == seen


def engine(index: int) -> Engine:
    return Engine(index, f"http://e{index}:8000", lambda: 0.0, Watchdog())


def view(ready: bool, most: int | None = None, waiting: int = 0) -> View:
    return View(ready=ready, status={"max_num_seqs": most, "running": 10, "waiting": waiting})


def test_the_bound_is_the_sum_over_the_engines_that_are_ready() -> None:
    admission = Admission(UNKNOWN, 10)
    bound, one, two = AutoBound(admission), engine(0), engine(1)
    bound.look(one, View())
    assert admission.slots == UNKNOWN
    bound.look(one, view(ready=False, most=64))
    assert admission.slots == 64
    bound.look(one, view(ready=True, most=64))
    bound.look(two, View(ready=True))  # no launcher beside it
    assert admission.slots == 64 + UNKNOWN
    bound.look(two, View())
    assert admission.slots == 64
    bound.look(one, View())  # none is ready: what is known stays
    assert admission.slots == 64 + UNKNOWN


def test_an_engine_that_is_passed_over_adds_nothing_while_another_serves() -> None:
    admission = Admission(UNKNOWN, 10)
    bound, one, two = AutoBound(admission), engine(0), engine(1)
    bound.look(two, view(ready=True, most=32))
    bound.look(one, view(ready=True, most=64))
    one.ejected = True
    bound.look(one, view(ready=True, most=64))
    assert admission.slots == 32
    bound.look(two, view(ready=False, most=32))
    assert admission.slots == 64


def test_an_engine_that_comes_back_begins_anew() -> None:
    admission = Admission(UNKNOWN, 10)
    bound, one = AutoBound(admission), engine(0)
    for _ in range(3):
        bound.look(one, view(ready=True, most=64, waiting=50))
    assert admission.slots == 14
    bound.look(one, View())
    bound.look(one, view(ready=True, most=64, waiting=50))
    assert admission.slots == 64


def test_a_refusal_counts_at_once() -> None:
    admission = Admission(UNKNOWN, 10)
    bound, one = AutoBound(admission), engine(0)
    bound.look(one, view(ready=True, most=64))
    one.in_flight = 6
    bound.refused(one)
    assert admission.slots == 5


def test_the_bound_is_for_all_workers_and_a_refusal_tells_of_all() -> None:
    """What an engine says of itself is the sum already; what is in flight is this worker's."""
    admission = Admission(UNKNOWN, 10)
    bound, one = AutoBound(admission, workers=3), engine(0)
    bound.look(one, view(ready=True, most=64))
    assert admission.slots == 64
    one.in_flight = 6
    bound.refused(one)
    assert admission.slots == 17
