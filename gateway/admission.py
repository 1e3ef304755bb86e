"""Slots and a bounded waiting room that is fair between keys. No HTTP, no logging.

acquire ──▶ free slot? ──yes──▶ in use ──release──▶ next waiter, or free
                │no
                ▼
           room in the queue? ──no──▶ another key has the most waiting, by two or more?
                │yes                    ├─no──▶ Overloaded, at once
                │                       └─yes─▶ its youngest is Overloaded, its place is ours
                ▼
             waiting ──slot──▶ in use
                ├──time-out, or its place was taken──▶ Overloaded
                └──cancelled──▶ (a slot granted in the same instant goes to the next)

A free slot goes to the keys in turn, and within a key to who waited longest: see fairqueue.py.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol

from gateway.errors import Overloaded
from gateway.fairqueue import FairQueue

# A slot frees up every few hundred milliseconds under load; half a minute would be idle capacity.
RETRY_AFTER_S = 2
FULL = "The server is at capacity and its queue is full."
GAVE_WAY = f"{FULL} This key has most of it, so its newest request gave way to another key's."

# What a waiter's future comes to: its slot, or why there is none.
Verdict = str | None
Waiter = asyncio.Future[Verdict]


def late(timeout_s: float) -> str:
    """Why a waiter goes without, after its time."""
    return f"No slot became free within {timeout_s:g} s."


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

    def slot(self, key: str, timeout_s: float) -> AbstractAsyncContextManager[None]:
        """`async with` it to hold a slot. Raises Overloaded."""

    def resize(self, slots: int) -> None:
        """From now on that many slots."""


class Admission:
    """`slots` requests run, `room` wait. One event loop, no threads."""

    def __init__(self, slots: int, room: int) -> None:
        self._slots = slots
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

    def slot(self, key: str, timeout_s: float) -> Slot:
        """`async with` it to hold a slot; raises Overloaded when the room is full or the wait too
        long. `key`: the name of whoever asks.
        """
        return Slot(self, key, timeout_s)

    async def acquire(self, key: str, timeout_s: float) -> None:
        """A slot, to be given to `release` once."""
        if not self.take():
            self._make_room(key)
            await self._wait(key, timeout_s)

    def take(self) -> bool:
        """A slot at once, if there is one; somebody waits only while none is free."""
        if self._in_use >= self._slots:
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
        self._grant()

    def _grant(self) -> None:
        while self._in_use < self._slots and self._queue:
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
            raise Overloaded(FULL, RETRY_AFTER_S)
        _settle(self._queue.pop_youngest_of_longest(), GAVE_WAY)

    async def _wait(self, key: str, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        self._queue.push(key, waiter)
        timer = loop.call_later(timeout_s, self._end, key, waiter, late(timeout_s))
        try:
            refusal = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result() is None:
                self.release()
            raise
        finally:
            timer.cancel()
            self._queue.discard(key, waiter)
        if refusal is not None:
            raise Overloaded(refusal, RETRY_AFTER_S)

    def _end(self, key: str, waiter: Waiter, refusal: str) -> None:
        self._queue.discard(key, waiter)
        _settle(waiter, refusal)


class Slot:
    """One slot held for the length of an `async with`. A class, since a generator would cost more
    than the admission itself.
    """

    __slots__ = ("_admission", "_key", "_timeout_s")

    def __init__(self, admission: Admission, key: str, timeout_s: float) -> None:
        self._admission = admission
        self._key = key
        self._timeout_s = timeout_s

    async def __aenter__(self) -> None:
        if not self._admission.take():
            await self._admission.acquire(self._key, self._timeout_s)

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
