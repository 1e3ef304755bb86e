"""Slots and a bounded waiting room that is fair between keys. No HTTP, no logging.

acquire ──▶ free slot? ──yes──▶ in use ──release──▶ next waiter, or free
                │no, or no engine is ready (the gate is shut: gate.py)
                ▼
           room in the queue? ──no──▶ another key has the most waiting, by two or more?
                │yes                    ├─no──▶ Overloaded, at once
                │                       └─yes─▶ its youngest is Overloaded, its place is ours
                ▼
             waiting ──slot──▶ in use
                ├──time-out, or its place was taken──▶ Overloaded; NotReady after the hold
                └──cancelled──▶ (a slot granted in the same instant goes to the next)

A free slot goes to the keys in turn, and within a key to who waited longest: see fairqueue.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Protocol

from gateway.errors import Unavailable
from gateway.fairqueue import FairQueue
from gateway.gate import Gate, Wait, unknown

# What a waiter's future comes to: its slot, or why there is none.
Verdict = Unavailable | None
Waiter = asyncio.Future[Verdict]


class Slots(Protocol):
    """The seam between the data path and whoever counts."""

    @property
    def slots(self) -> int:
        """How many may run."""

    @property
    def in_use(self) -> int:
        """How many run here."""

    @property
    def waiting(self) -> int:
        """How many wait here."""

    def slot(self, key: str, wait: Wait) -> AbstractAsyncContextManager[None]:
        """`async with` it to hold a slot. Raises Overloaded, NotReady."""

    def resize(self, slots: int) -> None:
        """From now on that many slots."""

    def turn(self, ready: bool) -> None:
        """Whether an engine is ready; while none is, nobody gets a slot."""


class Admission:
    """`slots` requests run, `room` wait. One event loop, no threads."""

    def __init__(self, slots: int, room: int, phase: Callable[[], str] = unknown) -> None:
        self._gate = Gate(phase)
        self._slots = slots
        self._free_up_to = slots  # none while the gate is shut
        self._room = room
        self._in_use = 0
        self._queue: FairQueue[Waiter] = FairQueue()

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def in_use(self) -> int:
        return self._in_use

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def slot(self, key: str, wait: Wait) -> Slot:
        """`async with` it to hold a slot; raises Overloaded when the room is full or the wait too
        long, NotReady when no engine came in time. `key`: the name of whoever asks.
        """
        return Slot(self, key, wait)

    async def acquire(self, key: str, wait: Wait) -> None:
        """A slot, to be given to `release` once."""
        if not self.take():
            if not wait.again:
                self._make_room(key)
            await self._wait(key, wait)

    def take(self) -> bool:
        """A slot at once, if there is one; somebody waits only while none is free."""
        if self._in_use >= self._free_up_to:
            return False
        self._in_use += 1
        return True

    def release(self) -> None:
        self._in_use -= 1
        if self._queue:
            self._grant()

    def resize(self, slots: int) -> None:
        """From now on that many slots, at least 1. Nobody who runs is cut: with fewer, the next
        ones start when enough of them have ended.
        """
        self._slots = slots
        self._open()

    def turn(self, ready: bool) -> None:
        """Whether an engine is ready. While none is, whoever asks waits, as many as the room takes,
        and those whose slot the last engine left behind wait first.
        """
        self._gate.turn(ready)
        self._open()

    def _open(self) -> None:
        self._free_up_to = self._slots if self._gate.open else 0
        self._grant()

    def _grant(self) -> None:
        while self._in_use < self._free_up_to and self._queue:
            waiter = self._queue.pop()
            if not waiter.done():
                waiter.set_result(None)
                self._in_use += 1

    def _make_room(self, key: str) -> None:
        """Raises Overloaded where there is none. A key that waits for much gives way to one that
        waits for little, never the other way round, so a place never goes back and forth.
        """
        if len(self._queue) < self._room:
            return
        if self._queue.waiting(key) + 1 >= self._queue.longest:
            raise self._gate.full()
        _settle(self._queue.pop_youngest_of_longest(), self._gate.gave_way())

    async def _wait(self, key: str, wait: Wait) -> None:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._queue.push(key, waiter, first=wait.again)
        self._gate.start(wait, partial(self._end, key, waiter))
        try:
            refusal = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result() is None:
                self.release()
            raise
        finally:
            self._gate.stop(wait)
            self._queue.discard(key, waiter)
        if refusal is not None:
            raise refusal

    def _end(self, key: str, waiter: Waiter, refusal: Unavailable) -> None:
        self._queue.discard(key, waiter)
        _settle(waiter, refusal)


class Slot:
    """One slot held for the length of an `async with`. A class, since a generator would cost more
    than the admission itself.
    """

    __slots__ = ("_admission", "_key", "_wait")

    def __init__(self, admission: Admission, key: str, wait: Wait) -> None:
        self._admission = admission
        self._key = key
        self._wait = wait

    async def __aenter__(self) -> None:
        if not self._admission.take():
            await self._admission.acquire(self._key, self._wait)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.release()


def _settle(waiter: Waiter, refusal: Verdict) -> None:
    if not waiter.done():
        waiter.set_result(refusal)
