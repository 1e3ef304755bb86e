"""The waiting room: order, bounds, time-outs, and cancellation at every moment."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.admission import Admission
from gateway.errors import Overloaded


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_slots_then_queue_then_refusal() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=1)
        await admission.acquire(1)
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(admission.acquire(1))
            await settle()
            assert (admission.in_use, admission.waiting) == (1, 1)
            with pytest.raises(Overloaded):
                await admission.acquire(1)
            admission.release()
            await waiter
        assert (admission.in_use, admission.waiting) == (1, 0)

    asyncio.run(run())


def test_nobody_overtakes() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=9)
        order: list[int] = []

        async def use(number: int) -> None:
            async with admission.slot(1):
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
        await admission.acquire(1)
        with pytest.raises(Overloaded, match=r"0\.01 s"):
            await admission.acquire(0.01)
        assert admission.waiting == 0

    asyncio.run(run())


def test_a_slot_granted_to_a_cancelled_waiter_goes_on() -> None:
    async def run() -> None:
        admission = Admission(slots=1, room=2)
        await admission.acquire(1)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(admission.acquire(1))
            second = group.create_task(admission.acquire(1))
            await settle()
            admission.release()
            first.cancel()
            await second
        assert (admission.in_use, admission.waiting) == (1, 0)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(20))
def test_no_slot_is_lost_or_made_by_any_mix_of_cancels(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret

    async def use(admission: Admission) -> None:
        async with admission.slot(dice.choice([0.001, 1])):
            assert admission.in_use <= 3
            await asyncio.sleep(dice.random() / 500)

    async def run() -> None:
        admission = Admission(slots=3, room=20)
        tasks = [asyncio.ensure_future(use(admission)) for _ in range(40)]
        for _ in range(20):
            await asyncio.sleep(dice.random() / 1000)
            dice.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (admission.in_use, admission.waiting) == (0, 0)

    asyncio.run(run())
