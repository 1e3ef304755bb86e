"""Slots and the waiting room over all workers; the same calls as `gateway.admission`.

    slot ──TAKE──▶ a slot is free, nobody waits anywhere, an engine is ready ──▶ running
                   room in the queue of all workers together ──▶ waiting
                   no room ──▶ Overloaded
    waiting ──PUMP──▶ as slots are granted to this worker: fair between keys ──▶ running
       ├── time-out ──▶ Overloaded, NotReady    PUMP also gives back what ended; it is asked
       └── client leaves                        again every POLL_S while something waits here
    Valkey gone, at any moment ──▶ this worker's share of slots and room, until it is back

`in_use` and the queue are this worker's own truth; Valkey's counts follow them: each difference is
told once, in order, and a new session begins with the whole numbers (link.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final

from gateway.errors import Unavailable
from gateway.gate import Gate, Wait, unknown
from gateway.shared.link import Link, Word
from gateway.shared.room import Room, State, Ticket
from gateway.shared.slots import PUMP, TAKE

# Only while something waits here. A slot that another worker gave back is found this soon.
POLL_S: Final = 0.02
# Places in the queue for one that had a slot before: it is let in whatever waits.
ANY: Final = 1 << 30


class SharedAdmission:
    """`slots` requests run, `room` wait, all `workers` together. One event loop."""

    def __init__(
        self,
        link: Link,
        slots: int,
        room: int,
        workers: int,
        phase: Callable[[], str] = unknown,
    ) -> None:
        self._link = link
        self._gate = Gate(phase)
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
        self._move()

    def turn(self, ready: bool) -> None:
        """Whether an engine is ready, as this worker sees it; while none is, it starts nothing."""
        self._gate.turn(ready)
        self._move()

    def slot(self, key: str, wait: Wait) -> SharedSlot:
        """`async with` it to hold a slot; raises Overloaded when the room is full or the wait too
        long, NotReady when no engine came in time. `key`: the name of whoever asks.
        """
        return SharedSlot(self, key, wait)

    async def acquire(self, ticket: Ticket, wait: Wait) -> None:
        self._gate.start(wait, partial(self._late, ticket))
        try:
            self._ask(ticket, self._room if not wait.again else ANY)
            await ticket.settled
        except BaseException:  # above all a cancel: the client has left
            self.release(ticket)
            raise
        finally:
            self._gate.stop(wait)
        if ticket.why is not None:
            raise ticket.why

    def release(self, ticket: Ticket) -> None:
        """It is over, in whatever state it was."""
        state, ticket.state = ticket.state, State.OVER
        if state is State.RUNNING:
            self.in_use -= 1
            self._ended += self._link.up
        elif state is State.WAITING:
            self._queue.remove(ticket)
            self._left += self._link.up
        self._move()

    @property
    def _open_slots(self) -> int:
        return self._slots if self._gate.open else 0

    def _move(self) -> None:
        """Let in whoever may come in now."""
        if self._link.up:
            self._pump()
        else:
            self._run_own()

    def _late(self, ticket: Ticket, why: Unavailable) -> None:
        if not ticket.settled.done():
            self.release(ticket)
            ticket.refuse(why)

    def _ask(self, ticket: Ticket, room: int) -> None:
        if self._link.up:
            self._link.send(TAKE, (self._open_slots, room), partial(self._taken, ticket, room))
        else:
            self._ask_own(ticket, room)

    def _taken(self, ticket: Ticket, room: int, answer: Any) -> None:  # noqa: ANN401 - Valkey's answer
        gone = ticket.state is State.OVER
        if answer is None:
            if not gone:
                self._ask_own(ticket, room)
        elif answer == 1:
            self._ended += gone
            if not gone:
                self._run(ticket)
        elif answer:
            self._left += gone
            if not gone:
                ticket.since = 0 if room == ANY else answer
                self._queue.push(ticket, first=room == ANY)
        elif not gone:
            self._full(ticket)
        self._pump()

    def _full(self, ticket: Ticket) -> None:
        """A key that waits for much gives way to one that waits for little. In Valkey the number
        stays the same.
        """
        other = self._queue.give_way(ticket.key)
        if other is None:
            ticket.refuse(self._gate.full())
        else:
            other.refuse(self._gate.gave_way())
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
        words: tuple[Word, ...] = (self._ended, self._left, since, self._open_slots)
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
        elif self._queue and self._gate.open:
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._pump)

    def held(self) -> list[Word]:
        return [self.in_use, len(self._queue)]

    def found(self) -> None:
        self._pump()

    def lost(self) -> None:
        self._ended = self._left = 0
        self._run_own()

    def _ask_own(self, ticket: Ticket, room: int) -> None:
        """Without Valkey: from this worker's share, at least one slot."""
        if len(self._queue) >= room // self._workers and self.in_use >= self._own:
            self._full(ticket)
            return
        self._queue.push(ticket, first=room == ANY)
        self._run_own()

    @property
    def _own(self) -> int:
        return max(1, self._slots // self._workers) if self._gate.open else 0

    def _run_own(self) -> None:
        while self._queue and self.in_use < self._own:
            self._run(self._queue.pop())


class SharedSlot:
    """One slot held for the length of an `async with`."""

    __slots__ = ("_admission", "_ticket", "_wait")

    def __init__(self, admission: SharedAdmission, key: str, wait: Wait) -> None:
        self._admission = admission
        self._ticket = Ticket(key, asyncio.get_running_loop().create_future())
        self._wait = wait

    async def __aenter__(self) -> None:
        await self._admission.acquire(self._ticket, self._wait)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.release(self._ticket)
