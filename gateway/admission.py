"""Slots and a bounded waiting room, first come first served. No HTTP, no logging.

acquire ──▶ free slot? ──yes──▶ in use ──release──▶ next waiter, or free
                │no
                ▼
           room in the queue? ──no──▶ Overloaded, at once
                │yes
                ▼
             waiting ──slot──▶ in use
                ├──time-out──▶ Overloaded
                └──cancelled──▶ (a slot granted in the same instant goes to the next)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.errors import Overloaded

# A slot frees up every few hundred milliseconds under load; half a minute would be idle capacity.
RETRY_AFTER_S = 2


class Admission:
    """`slots` requests run, `room` wait. One event loop, no threads."""

    def __init__(self, slots: int, room: int) -> None:
        self._free = slots
        self._slots = slots
        self._room = room
        self._queue: dict[asyncio.Future[None], None] = {}  # ordered, and O(1) to leave

    @property
    def in_use(self) -> int:
        return self._slots - self._free

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @asynccontextmanager
    async def slot(self, timeout_s: float) -> AsyncIterator[None]:
        """Hold a slot; raises Overloaded when the room is full or the wait too long."""
        await self.acquire(timeout_s)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, timeout_s: float) -> None:
        if self._free and not self._queue:
            self._free -= 1
            return
        if len(self._queue) >= self._room:
            raise Overloaded("The server is at capacity and its queue is full.", RETRY_AFTER_S)
        await self._wait(timeout_s)

    def release(self) -> None:
        """Hand the slot to the longest waiter, or free it."""
        while self._queue:
            waiter = next(iter(self._queue))
            del self._queue[waiter]
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    async def _wait(self, timeout_s: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[waiter] = None
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except (TimeoutError, asyncio.CancelledError) as error:
            self._leave(waiter)
            if isinstance(error, TimeoutError):
                message = f"No slot became free within {timeout_s:g} s."
                raise Overloaded(message, RETRY_AFTER_S) from None
            raise

    def _leave(self, waiter: asyncio.Future[None]) -> None:
        granted = waiter.done() and not waiter.cancelled()
        self._queue.pop(waiter, None)
        if granted:
            self.release()
