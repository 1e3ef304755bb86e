"""The waiting room: order, fairness, bounds, time-outs, and cancellation at every moment."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.admission import Admission
from gateway.errors import NotReady, Overloaded
from gateway.fairqueue import FairQueue
from gateway.gate import Wait


def wait(queue_s: float, hold_s: float = 10) -> Wait:
    return Wait(queue_s, hold_s)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_slots_then_queue_then_refusal() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=1)
        await admission.acquire("a", wait(1))
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(admission.acquire("a", wait(1)))
            await settle()
            assert (admission.in_use, admission.waiting) == (1, 1)
            with pytest.raises(Overloaded):
                await admission.acquire("a", wait(1))
            admission.release()
            await waiter
        assert (admission.in_use, admission.waiting) == (1, 0)

    asyncio.run(run())


def test_nobody_overtakes() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=9)
        order: list[int] = []

        async def use(number: int) -> None:
            async with admission.slot("a", wait(1)):
                order.append(number)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for number in range(9):
                group.create_task(use(number))
        assert order == list(range(9))
        assert (admission.in_use, admission.waiting) == (0, 0)

    asyncio.run(run())


def test_a_wait_ends_in_time() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=1)
        await admission.acquire("a", wait(1))
        with pytest.raises(Overloaded, match=r"0\.01 s"):
            await admission.acquire("a", wait(0.01))
        assert admission.waiting == 0

    asyncio.run(run())


def test_a_slot_granted_to_a_cancelled_waiter_goes_on() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=2)
        await admission.acquire("a", wait(1))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(admission.acquire("a", wait(1)))
            second = group.create_task(admission.acquire("a", wait(1)))
            await settle()
            admission.release()
            first.cancel()
            await second
        assert (admission.in_use, admission.waiting) == (1, 0)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(20))
def test_no_slot_is_lost_or_made_by_any_mix_of_cancels_and_sizes(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret

    async def use(admission: Admission) -> None:
        async with admission.slot(dice.choice("abcd"), wait(dice.choice([0.001, 1]))):
            assert admission.in_use <= 3
            await asyncio.sleep(dice.random() / 500)

    async def run() -> None:
        admission = Admission(slots=3, room=20)
        tasks = [asyncio.ensure_future(use(admission)) for _ in range(40)]
        for _ in range(20):
            await asyncio.sleep(dice.random() / 1000)
            admission.resize(dice.choice([1, 2, 3]))
            admission.turn(dice.random() < 0.7)
            dice.choice(tasks).cancel()
        admission.turn(True)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (admission.in_use, admission.waiting) == (0, 0)

    asyncio.run(run())


class Room:
    """A full admission; `served` has the keys in the order of their slots."""

    def __init__(self, room: int) -> None:
        self.admission = Admission(slots=1, room=room)
        self.served: list[str] = []
        self.refused: list[str] = []

    async def use(self, name: str, patience: Wait | None = None) -> None:
        try:
            async with self.admission.slot(name[0], patience or wait(10)):
                self.served.append(name)
        except Overloaded:
            self.refused.append(name)

    async def fill(self, group: asyncio.TaskGroup, names: list[str]) -> list[asyncio.Task[None]]:
        tasks = [group.create_task(self.use(name)) for name in names]
        await settle()
        return tasks


def test_keys_take_turns() -> None:
    async def run() -> None:
        room = Room(9)
        await room.admission.acquire("x", wait(1))
        async with asyncio.TaskGroup() as group:
            await room.fill(group, ["a1", "a2", "a3", "a4", "b1", "b2", "c1"])
            room.admission.release()
        assert room.served == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]

    asyncio.run(run())


def test_one_key_with_a_thousand_waiting_does_not_starve_another() -> None:
    async def run() -> None:
        room = Room(1024)
        await room.admission.acquire("g", wait(1))
        async with asyncio.TaskGroup() as group:
            await room.fill(group, [f"g{n}" for n in range(1000)])
            await room.fill(group, ["b0"])
            room.admission.release()
        assert room.served.index("b0") <= 1
        assert len(room.served) == 1001

    asyncio.run(run())


def test_a_greedy_key_in_a_full_room_gives_way() -> None:
    async def run() -> None:
        room = Room(4)
        await room.admission.acquire("g", wait(1))
        async with asyncio.TaskGroup() as group:
            await room.fill(group, ["g1", "g2", "g3", "g4", "g5"])
            assert room.refused == ["g5"]
            await room.fill(group, ["b1", "b2"])
            assert room.refused == ["g5", "g4", "g3"]
            await room.fill(group, ["b3", "g6"])  # two and two: nobody gives way any more
            assert room.refused == ["g5", "g4", "g3", "b3", "g6"]
            await room.fill(group, ["c1", "d1"])
            assert room.refused[5:] == ["g2", "b2"]
            await room.fill(group, ["e1"])  # one each: nobody has more than another
            assert room.refused[7:] == ["e1"]
            assert room.admission.waiting == 4
            room.admission.release()
        assert room.served == ["g1", "b1", "c1", "d1"]

    asyncio.run(run())


def test_a_room_without_a_place_refuses() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=0)
        await admission.acquire("a", wait(1))
        with pytest.raises(Overloaded):
            await admission.acquire("b", wait(1))

    asyncio.run(run())


def test_more_slots_start_more_at_once_and_fewer_cut_nobody() -> None:
    async def run() -> None:
        room = Room(9)
        admission = room.admission
        await admission.acquire("x", wait(1))
        async with asyncio.TaskGroup() as group:
            await room.fill(group, ["a1", "a2"])
            admission.resize(3)
            assert (admission.in_use, admission.waiting) == (3, 0)
            await settle()
            assert (room.served, admission.in_use) == (["a1", "a2"], 1)
            await admission.acquire("x", wait(1))
            admission.resize(1)
            assert (admission.slots, admission.in_use) == (1, 2)
            await room.fill(group, ["a3"])
            admission.release()
            await settle()
            assert admission.waiting == 1
            admission.release()
        assert room.served == ["a1", "a2", "a3"]

    asyncio.run(run())


def test_a_place_given_up_in_the_same_instant_as_a_cancel() -> None:
    async def run() -> None:
        room = Room(2)
        await room.admission.acquire("g", wait(1))
        async with asyncio.TaskGroup() as group:
            _, youngest = await room.fill(group, ["g1", "g2"])
            newcomer = group.create_task(room.use("b1"))
            youngest.cancel()
            await asyncio.sleep(0)
            room.admission.release()
            await newcomer
        assert room.admission.in_use == room.admission.waiting == 0

    asyncio.run(run())


def test_a_free_slot_takes_no_turn_of_the_loop() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=0)
        entering = admission.slot("a", wait(1)).__aenter__()
        with pytest.raises(StopIteration):
            entering.send(None)
        assert admission.in_use == 1

    asyncio.run(run())


class Plain:
    """What a fair queue is, written the slow way."""

    def __init__(self) -> None:
        self.lines: dict[str, list[int]] = {}

    def pop(self) -> int:
        key = next(iter(self.lines))
        line = self.lines.pop(key)
        item = line.pop(0)
        if line:
            self.lines[key] = line
        return item

    def remove(self, key: str, item: int) -> None:
        self.lines[key].remove(item)
        if not self.lines[key]:
            del self.lines[key]


@pytest.mark.parametrize("seed", range(20))
def test_the_queue_is_what_it_says(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    queue: FairQueue[int] = FairQueue()
    plain = Plain()
    for item in range(3000):
        key = dice.choice("aaaabbcdef")
        waiting = [(k, i) for k, line in plain.lines.items() for i in line]
        move = dice.choice(["push", "push", "pop", "discard", "evict"])
        if move == "push":
            queue.push(key, item)
            plain.lines.setdefault(key, []).append(item)
        elif waiting and move == "pop":
            assert queue.pop() == plain.pop()
        elif waiting and move == "discard":
            chosen = dice.choice(waiting)
            queue.discard(*chosen)
            queue.discard(*chosen)
            plain.remove(*chosen)
        elif waiting and move == "evict":
            gone = queue.pop_youngest_of_longest()
            greedy = next(k for k, i in waiting if i == gone)
            assert len(plain.lines[greedy]) == max(map(len, plain.lines.values()))
            assert plain.lines[greedy][-1] == gone
            plain.remove(greedy, gone)
        assert len(queue) == sum(map(len, plain.lines.values()))
        assert queue.waiting(key) == len(plain.lines.get(key, []))
        assert queue.longest == max(map(len, plain.lines.values()), default=0)


def test_an_empty_queue_has_nothing_to_give() -> None:
    with pytest.raises(IndexError):
        FairQueue[int]().pop()


def test_nobody_starts_while_no_engine_is_ready_and_the_room_bounds_who_waits() -> None:
    async def run() -> None:
        room = Room(2)
        room.admission.turn(False)
        async with asyncio.TaskGroup() as group:
            await room.fill(group, ["a1", "b1"])
            assert (room.admission.in_use, room.admission.waiting) == (0, 2)
            with pytest.raises(Overloaded, match="No engine is ready") as full:
                await room.admission.acquire("a", wait(1))
            assert full.value.headers == [(b"retry-after", b"10")]
            room.admission.resize(9)
            await settle()
            assert room.served == []
            room.admission.turn(True)
        assert room.served == ["a1", "b1"]
        room.admission.turn(True)
        assert (room.admission.in_use, room.admission.waiting) == (0, 0)

    asyncio.run(run())


def test_while_no_engine_is_ready_the_queue_time_stands_still() -> None:
    """It came before the engine went away, and waits longer than its queue time."""

    async def run() -> None:
        admission = Admission(slots=1, room=1)
        await admission.acquire("a", wait(1))
        patience = wait(0.5)
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(admission.acquire("a", patience))
            await settle()
            admission.turn(False)
            admission.release()
            await asyncio.sleep(0.6)
            assert not waiter.done()
            admission.turn(True)
        assert patience.queued_s < 0.5 < patience.held_s

    asyncio.run(run())


def test_what_is_left_of_the_queue_time_is_all_there_is() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=1)
        await admission.acquire("a", wait(1))
        waiter = asyncio.ensure_future(admission.acquire("a", wait(0.1)))
        for ready in (False, True, False, True):
            await asyncio.sleep(0.03)
            admission.turn(ready)
        with pytest.raises(Overloaded, match=r"0\.1 s"):
            await waiter
        assert admission.waiting == 0

    asyncio.run(run())


def test_past_the_hold_the_phase_is_told() -> None:
    async def run() -> None:
        admission = Admission(1, 1, lambda: "compiling")
        admission.turn(False)
        with pytest.raises(NotReady, match="compiling") as late:
            await admission.acquire("a", wait(0.01, hold_s=0.05))
        assert late.value.headers == [(b"retry-after", b"10")]
        assert (admission.in_use, admission.waiting) == (0, 0)

    asyncio.run(run())


def test_who_had_a_slot_and_lost_its_engine_goes_first_and_always_has_a_place() -> None:
    async def run() -> None:
        room = Room(1)
        room.admission.turn(False)
        async with asyncio.TaskGroup() as group:
            await room.fill(group, ["a1"])
            again = group.create_task(room.use("a2", Wait(10, 10, again=True)))
            await settle()
            assert (room.admission.waiting, room.refused) == (2, [])
            room.admission.turn(True)
            await again
        assert room.served == ["a2", "a1"]

    asyncio.run(run())
