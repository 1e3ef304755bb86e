"""Slots and the waiting room over all workers; the same calls as `gateway.admission`.

    slot ──TAKE──▶ a slot is free, and nobody waits anywhere ──▶ running
                   room in the queue of all workers together ──▶ waiting
                   no room ──▶ Overloaded
    waiting ──PUMP──▶ as slots are granted to this worker: fair between keys ──▶ running
       ├── time-out ──▶ Overloaded              PUMP also gives back what ended; it is asked
       └── client leaves                        again every POLL_S while something waits here
    Valkey gone, at any moment ──▶ this worker's share of slots and room, until it is back

`in_use` and the queue are this worker's own truth; Valkey's counts follow them: each difference is
told once, in order, and a new session begins with the whole numbers (link.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import Any, Final

from gateway.admission import FULL, GAVE_WAY, RETRY_AFTER_S, late
from gateway.errors import Overloaded
from gateway.shared.link import Link, Word
from gateway.shared.room import Room, State, Ticket
from gateway.shared.slots import PUMP, TAKE

# Only while something waits here. A slot that another worker gave back is found this soon.
POLL_S: Final = 0.02


class SharedAdmission:
    """`slots` requests run, `room` wait, all `workers` together. One event loop."""

    def __init__(self, link: Link, slots: int, room: int, workers: int) -> None:
        self._link = link
        self._slots = slots
        self._room = room
        self._workers = workers
        self._queue = Room()
        self._ended = 0  # slots to give back with the next PUMP
        self._left = 0  # waiters to take back
        self._pumping = False
        self._timer: asyncio.TimerHandle | None = None
        self.in_use = 0

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def resize(self, slots: int) -> None:
        """From now on `slots` may run, over all workers; what runs goes on."""
        self._slots = slots
        if self._link.up:
            self._pump()
        else:
            self._run_own()

    def slot(self, key: str, timeout_s: float) -> SharedSlot:
        """`async with` it to hold a slot; raises Overloaded when the room is full or the wait too
        long. `key`: the name of whoever asks.
        """
        return SharedSlot(self, key, timeout_s)

    async def acquire(self, ticket: Ticket, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout_s, self._late, ticket, late(timeout_s))
        try:
            self._ask(ticket)
            await ticket.settled
        except BaseException:  # above all a cancel: the client has left
            self.release(ticket)
            raise
        finally:
            timer.cancel()
        if ticket.why is not None:
            raise Overloaded(ticket.why, RETRY_AFTER_S)

    def release(self, ticket: Ticket) -> None:
        """It is over, in whatever state it was."""
        state, ticket.state = ticket.state, State.OVER
        if state is State.RUNNING:
            self.in_use -= 1
            self._ended += self._link.up
        elif state is State.WAITING:
            self._queue.remove(ticket)
            self._left += self._link.up
        if self._link.up:
            self._pump()
        else:
            self._run_own()

    def _late(self, ticket: Ticket, why: str) -> None:
        if not ticket.settled.done():
            self.release(ticket)
            ticket.refuse(why)

    def _ask(self, ticket: Ticket) -> None:
        if self._link.up:
            self._link.send(TAKE, (self._slots, self._room), partial(self._taken, ticket))
        else:
            self._ask_own(ticket)

    def _taken(self, ticket: Ticket, answer: Any) -> None:  # noqa: ANN401 - Valkey's answer
        gone = ticket.state is State.OVER
        if answer is None:
            if not gone:
                self._ask_own(ticket)
        elif answer == 1:
            self._ended += gone
            if not gone:
                self._run(ticket)
        elif answer:
            self._left += gone
            if not gone:
                ticket.since = answer
                self._queue.push(ticket)
        elif not gone:
            self._full(ticket)
        self._pump()

    def _full(self, ticket: Ticket) -> None:
        """A key that waits for much gives way to one that waits for little. In Valkey the number
        stays the same.
        """
        other = self._queue.give_way(ticket.key)
        if other is None:
            ticket.refuse(FULL)
        else:
            other.refuse(GAVE_WAY)
            ticket.since = other.since
            self._queue.push(ticket)

    def _run(self, ticket: Ticket) -> None:
        self.in_use += 1
        ticket.run()

    def _pump(self) -> None:
        """Tell what ended, ask for what waits; one at a time."""
        waits = bool(self._queue)
        if self._pumping or not self._link.up or not (waits or self._ended or self._left):
            return
        self._pumping = True
        if self._timer is not None:
            self._timer.cancel()
        since = self._queue.since if waits else 0
        words: tuple[Word, ...] = (self._ended, self._left, since, self._slots)
        self._ended = self._left = 0
        self._link.send(PUMP, words, self._pumped)

    def _pumped(self, answer: Any) -> None:  # noqa: ANN401 - Valkey's answer
        self._pumping = False
        if answer is None:  # `lost` follows
            return
        for _ in range(answer):
            if self._queue:
                self._run(self._queue.pop())
            else:  # meant for one that has left meanwhile: it is no longer counted as waiting
                self._left -= 1
                self._ended += 1
        if answer or self._ended or self._left:
            self._pump()
        elif self._queue:
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._pump)

    def held(self) -> list[Word]:
        return [self.in_use, len(self._queue)]

    def found(self) -> None:
        self._pump()

    def lost(self) -> None:
        self._ended = self._left = 0
        self._run_own()

    def _ask_own(self, ticket: Ticket) -> None:
        """Without Valkey: from this worker's share, at least one slot."""
        if len(self._queue) >= self._room // self._workers and self.in_use >= self._own:
            self._full(ticket)
            return
        self._queue.push(ticket)
        self._run_own()

    @property
    def _own(self) -> int:
        return max(1, self._slots // self._workers)

    def _run_own(self) -> None:
        while self._queue and self.in_use < self._own:
            self._run(self._queue.pop())


class SharedSlot:
    """One slot held for the length of an `async with`."""

    __slots__ = ("_admission", "_ticket", "_timeout_s")

    def __init__(self, admission: SharedAdmission, key: str, timeout_s: float) -> None:
        self._admission = admission
        self._ticket = Ticket(key, asyncio.get_running_loop().create_future())
        self._timeout_s = timeout_s

    async def __aenter__(self) -> None:
        await self._admission.acquire(self._ticket, self._timeout_s)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.release(self._ticket)
