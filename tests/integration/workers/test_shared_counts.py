"""Slots and limits of several workers, each with its own link to a real Valkey, on one loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from common.valkey import ValkeyProcess

from gateway.errors import NotReady, Overloaded, RateLimited
from gateway.gate import Wait
from gateway.keys import Key
from gateway.limits.limiter import Pass
from gateway.limits.local import LocalLimiter
from gateway.limits.shared import SharedLimiter
from gateway.shared.admission import SharedAdmission
from gateway.shared.link import Link
from gateway.shared.undertaker import bury

KEY = Key("a", b"")


@dataclass
class Worker:
    name: str
    link: Link
    admission: SharedAdmission
    limiter: SharedLimiter
    task: asyncio.Task[None] | None = None
    passes: list[Pass] = field(default_factory=list)

    async def enter(self, key: Key, tokens: int = 0) -> bool:
        try:
            self.passes.append(await self.limiter.enter(key, tokens))
        except RateLimited:
            return False
        return True

    async def die(self) -> None:
        """Without a word to Valkey."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def worker(url: str, name: str, workers: int, slots: int, room: int) -> Worker:
    link = Link(url, name)
    admission = SharedAdmission(link, slots, room, workers)
    limiter = SharedLimiter(link, LocalLimiter(), workers)
    link.add(admission)
    link.add(limiter)
    return Worker(name, link, admission, limiter)


@asynccontextmanager
async def crew(url: str, count: int = 2, slots: int = 4, room: int = 100) -> AsyncIterator[Any]:
    workers = [worker(url, f"w{index}", count, slots, room) for index in range(count)]
    for each in workers:
        each.task = asyncio.ensure_future(each.link.run())
        await each.link.settled(5)
        assert each.link.up
    try:
        yield workers
    finally:
        for each in workers:
            await each.die()


async def until(condition: Callable[[], object], timeout_s: float = 5) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - any condition, also one of another process
            await asyncio.sleep(0.005)


def run(work: Coroutine[None, None, None]) -> None:
    asyncio.run(work)


@dataclass
class Holder:
    """Asks for a slot and, once it has one, keeps it until told to leave."""

    admission: SharedAdmission
    key: str = "a"
    wait: Wait = field(default_factory=lambda: Wait(10, 10))
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    has: asyncio.Event = field(default_factory=asyncio.Event)

    async def hold(self) -> None:
        async with self.admission.slot(self.key, self.wait):
            self.has.set()
            await self.leave.wait()

    def start(self) -> Holder:
        self.task = asyncio.ensure_future(self.hold())
        return self


def refused(admission: SharedAdmission, words: str) -> Coroutine[None, None, None]:
    async def work() -> None:
        with pytest.raises(Overloaded, match=words):
            await Holder(admission).hold()

    return work()


@pytest.mark.parametrize("seed", range(4))
def test_never_more_slots_than_there_are(valkey: ValkeyProcess, seed: int) -> None:
    """Any mix of workers, keys, waits that end and clients that leave; then all is free again."""
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    running = most = served = 0

    async def use(admission: SharedAdmission) -> None:
        nonlocal running, most, served
        try:
            async with admission.slot(dice.choice("abc"), Wait(dice.choice([0.01, 5]), 5)):
                running += 1
                served += 1
                most = max(most, running)
                try:
                    await asyncio.sleep(dice.random() / 100)
                finally:
                    running -= 1
        except Overloaded:
            return

    async def work() -> None:
        async with crew(valkey.url, 3, slots=5) as workers:
            tasks = []
            for _ in range(300):
                tasks.append(asyncio.ensure_future(use(dice.choice(workers).admission)))
                if dice.random() < 0.3:
                    dice.choice(tasks).cancel()
                if dice.random() < 0.2:
                    await asyncio.sleep(0.002)
            await asyncio.gather(*tasks, return_exceptions=True)
            assert most == 5
            assert served > 50
            assert all(each.admission.waiting == each.admission.in_use == 0 for each in workers)
            await until(lambda: valkey.ask("EXISTS", "gw:slots", "gw:wait") == b":0\r\n")

    run(work())


def test_the_queue_has_one_length_for_all(valkey: ValkeyProcess) -> None:
    async def work() -> None:
        async with crew(valkey.url, slots=1, room=2) as (a, b):
            first = Holder(a.admission).start()
            await first.has.wait()
            waiting = [Holder(each.admission).start() for each in (a, b)]
            await until(lambda: a.admission.waiting and b.admission.waiting)
            for each in (a, b):
                await refused(each.admission, "queue is full")
            for each in (first, *waiting):
                each.leave.set()
            await asyncio.gather(first.task, *(each.task for each in waiting))

    run(work())


def test_while_no_engine_is_ready_all_workers_hold_what_one_queue_holds(
    valkey: ValkeyProcess,
) -> None:
    """Past the queue time, too; the worker that sees the engine first serves its own first."""

    async def work() -> None:
        async with crew(valkey.url, slots=2, room=3) as (a, b):
            held = []
            for each in (a, b):
                each.admission.turn(False)
                held.append(Holder(each.admission, wait=Wait(1, 10)).start())
            held.append(Holder(b.admission, wait=Wait(1, 10)).start())
            await until(lambda: a.admission.waiting + b.admission.waiting == 3)
            await refused(a.admission, "No engine is ready")
            again = Holder(a.admission, wait=Wait(1, 10, again=True)).start()
            await until(lambda: a.admission.waiting == 2)
            await asyncio.sleep(1.1)
            assert not any(each.has.is_set() for each in (*held, again))
            a.admission.turn(True)
            await again.has.wait()
            await held[0].has.wait()
            b.admission.turn(True)
            for each in (again, held[0], held[1], held[2]):
                each.leave.set()
                await each.task

    run(work())


@pytest.mark.parametrize("link", ["up", "down"])
def test_the_hold_ends_with_the_phase_and_leaves_nothing(valkey: ValkeyProcess, link: str) -> None:
    async def work() -> None:
        async with crew(valkey.url, slots=2, room=3) as (a, b):
            if link == "down":
                valkey.stall()
                await until(lambda: not a.link.up, 20)
            a.admission.turn(False)
            with pytest.raises(NotReady):
                await Holder(a.admission, wait=Wait(10, 0.1)).hold()
            assert (a.admission.in_use, a.admission.waiting) == (0, 0)
            valkey.go_on()
            await until(lambda: a.link.up and b.link.up and not a.link.busy)
            assert valkey.ask("EXISTS", "gw:slots", "gw:wait") == b":0\r\n"

    run(work())


def test_who_waits_longest_is_next_in_whatever_worker(valkey: ValkeyProcess) -> None:
    """Also when the slot that ends was another worker's, which has waiters of its own."""

    async def work() -> None:
        async with crew(valkey.url, slots=1) as (a, b):
            order = []
            for each in (a, b, a, b, a):
                order.append(Holder(each.admission).start())
                await until(lambda: a.admission.waiting + b.admission.waiting == len(order) - 1)
                await until(lambda: not a.link.busy and not b.link.busy)
            for number, holder in enumerate(order):
                await holder.has.wait()
                assert [each.has.is_set() for each in order[number + 1 :]] == [False] * (4 - number)
                holder.leave.set()
                await holder.task

    run(work())


def test_a_dead_workers_slots_are_free_when_it_is_buried(valkey: ValkeyProcess) -> None:
    async def work() -> None:
        async with crew(valkey.url, slots=2) as (a, b):
            held = [Holder(a.admission).start() for _ in range(2)]
            await asyncio.gather(*(each.has.wait() for each in held))
            key = Key("a", b"", max_concurrency=1)
            assert await a.enter(key)
            waiting = Holder(b.admission).start()
            await until(lambda: b.admission.waiting)
            assert not await b.enter(key)
            await a.die()
            await bury(valkey.url, a.name)
            await waiting.has.wait()
            assert await b.enter(key)
            waiting.leave.set()
            await waiting.task
            for each in held:
                each.task.cancel()

    run(work())


def test_a_worker_that_says_nothing_is_taken_for_dead(
    valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its time alone, when nobody buries it; and a worker that only slept comes back whole."""
    monkeypatch.setattr("gateway.shared.link.LIFE_US", 300_000)
    monkeypatch.setattr("gateway.shared.link.BEAT_S", 0.1)

    async def work() -> None:
        async with crew(valkey.url, slots=1) as (a, b):
            held = Holder(a.admission).start()
            await held.has.wait()
            await a.die()
            second = Holder(b.admission).start()
            await second.has.wait()
            a.task = asyncio.ensure_future(a.link.run())  # as if it had only been stopped
            await until(lambda: a.link.up)
            second.leave.set()
            await second.task
            third = Holder(b.admission).start()
            await until(lambda: b.admission.waiting)  # the one that came back runs, and counts
            held.leave.set()
            await third.has.wait()
            third.leave.set()
            await third.task

    run(work())


@pytest.mark.parametrize(
    "key",
    [
        Key("a", b"", requests_per_minute=50),
        Key("a", b"", tokens_per_minute=500),
        Key("a", b"", max_concurrency=50),
    ],
)
def test_limits_are_exact_over_workers(valkey: ValkeyProcess, key: Key) -> None:
    async def work() -> None:
        async with crew(valkey.url, 3) as workers:
            asked = [each.enter(key, 10) for _ in range(40) for each in workers]
            assert sum(await asyncio.gather(*asked)) == 50

    run(work())


def test_tokens_are_settled_in_the_shared_window(valkey: ValkeyProcess) -> None:
    key = Key("a", b"", tokens_per_minute=100)

    async def work() -> None:
        async with crew(valkey.url) as (a, b):
            assert await a.enter(key, 100)
            assert not await b.enter(key, 1)
            a.passes[0].leave(30)
            await until(lambda: not a.link.busy)
            assert not await b.enter(key, 71)
            assert await b.enter(key, 70)
            left = dict(b.passes[0].headers)[b"x-ratelimit-remaining-tokens"]
            assert left == b"0"
            b.passes[0].leave(None)  # the reservation stands
            await until(lambda: not b.link.busy)
            assert not await a.enter(key, 1)

    run(work())


def test_the_refusal_is_the_one_of_a_single_worker(valkey: ValkeyProcess) -> None:
    """Same words and headers; the clocks differ by what the test itself takes."""
    keys = [
        Key("a", b"", requests_per_minute=2, tokens_per_minute=50),
        Key("a", b"", tokens_per_minute=20),
        Key("a", b"", requests_per_minute=9, max_concurrency=2),
    ]

    async def refusal(limiter: SharedLimiter | LocalLimiter, key: Key) -> RateLimited:
        for _ in range(2):
            await limiter.enter(key, 10)
        with pytest.raises(RateLimited) as caught:
            await limiter.enter(key, 10)
        return caught.value

    async def work() -> None:
        for key in keys:
            valkey.ask("FLUSHALL", "SYNC")
            async with crew(valkey.url) as (a, _):
                shared = await refusal(a.limiter, key)
                single = await refusal(LocalLimiter(), key)
            assert (type(shared), shared.message) == (type(single), single.message)
            assert shared.headers == single.headers

    run(work())


def test_whoever_goes_while_entering_holds_nothing(valkey: ValkeyProcess) -> None:
    key = Key("a", b"", max_concurrency=1, tokens_per_minute=100)

    async def work() -> None:
        async with crew(valkey.url) as (a, b):
            for turns in range(12):
                task = asyncio.ensure_future(a.enter(key, 100))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                if a.passes:
                    a.passes.pop().leave(0)
                await until(lambda: not a.link.busy)
                assert await b.enter(key, 100)
                b.passes.pop().leave(0)
                await until(lambda: not b.link.busy)

    run(work())


def test_a_stalled_valkey_costs_half_a_second_once(valkey: ValkeyProcess) -> None:
    """Then this worker's share is in force at once, and the shared counts after the return, with
    what runs counted once.
    """
    key = Key("a", b"", max_concurrency=4)

    async def work() -> None:
        async with crew(valkey.url, slots=4) as (a, b):
            assert await a.enter(key)
            held = [Holder(a.admission).start()]
            await held[0].has.wait()
            valkey.stall()
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert await a.enter(key)
            assert loop.time() - began < 2
            assert not a.link.up
            assert not await a.enter(key)  # its share of 4 is 2
            held.append(Holder(a.admission).start())
            await asyncio.wait_for(held[1].has.wait(), 0.2)
            held.append(Holder(a.admission).start())
            await until(lambda: a.admission.waiting == 1)
            valkey.go_on()
            await until(lambda: a.link.up and b.link.up)
            await asyncio.wait_for(held[2].has.wait(), 2)  # 3 of 4 run
            assert await b.enter(key)
            assert await b.enter(key)
            assert not await b.enter(key)
            held.append(Holder(b.admission).start())
            await held[3].has.wait()
            held.append(Holder(b.admission).start())
            await until(lambda: b.admission.waiting == 1)
            for each in (*a.passes, *b.passes):
                each.leave(None)
            for holder in held:
                holder.leave.set()
                await holder.task
            await until(lambda: valkey.ask("EXISTS", "gw:slots", "gw:run:a") == b":0\r\n")

    run(work())


def test_a_valkey_that_forgot_everything_learns_what_runs(valkey: ValkeyProcess) -> None:
    key = Key("a", b"", max_concurrency=2)

    async def work() -> None:
        async with crew(valkey.url, slots=2) as (a, b):
            assert await a.enter(key)
            held = Holder(a.admission).start()
            await held.has.wait()
            valkey.kill()
            await until(lambda: not a.link.up and not b.link.up)
            valkey.start()
            await until(lambda: a.link.up and b.link.up)
            assert await b.enter(key)
            assert not await b.enter(key)
            second, third = Holder(b.admission).start(), Holder(b.admission).start()
            await second.has.wait()
            await until(lambda: b.admission.waiting == 1)
            for holder in (held, second, third):
                holder.leave.set()
                await holder.task

    run(work())


def test_a_loop_that_stood_still_gives_no_answer_up(valkey: ValkeyProcess) -> None:
    """It was the worker that was slow, not Valkey."""
    key = Key("a", b"", requests_per_minute=9)

    async def work() -> None:
        async with crew(valkey.url) as (a, _):
            for _ in range(3):
                task = asyncio.ensure_future(a.enter(key))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                time.sleep(0.8)  # noqa: ASYNC251 - the point of it
                assert await task
                assert a.link.up

    run(work())
