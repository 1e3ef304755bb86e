"""Requests that wait in this worker: fair between keys, and who waits longest is known."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto

from gateway.errors import Unavailable
from gateway.fairqueue import FairQueue


class State(Enum):
    ASKING = auto()
    WAITING = auto()
    RUNNING = auto()
    OVER = auto()


@dataclass(eq=False, slots=True)
class Ticket:
    """One request. `since`: Valkey's time at which it began to wait, 0 when Valkey was not there or
    it had a slot before: first of all. `why`: it was refused.
    """

    key: str
    settled: asyncio.Future[None]
    since: int = 0
    state: State = State.ASKING
    why: Unavailable | None = None

    def run(self) -> None:
        self._settle(State.RUNNING)

    def refuse(self, why: Unavailable) -> None:
        self.why = why
        self._settle(State.OVER)

    def _settle(self, state: State) -> None:
        self.state = state
        if not self.settled.done():
            self.settled.set_result(None)


class Room:
    """Every step is O(1), whatever waits and whoever leaves."""

    def __init__(self) -> None:
        self._turns: FairQueue[Ticket] = FairQueue()
        self._arrivals: OrderedDict[Ticket, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._arrivals)

    @property
    def since(self) -> int:
        """Since when its first waiter waits. Only of a room that is not empty."""
        return next(iter(self._arrivals)).since

    def push(self, ticket: Ticket, first: bool = False) -> None:
        """`first`: before all others, among keys before its own."""
        ticket.state = State.WAITING
        self._arrivals[ticket] = None
        if first:
            self._arrivals.move_to_end(ticket, last=False)
        self._turns.push(ticket.key, ticket, first)

    def pop(self) -> Ticket:
        """The one whose turn it is."""
        ticket = self._turns.pop()
        del self._arrivals[ticket]
        return ticket

    def remove(self, ticket: Ticket) -> None:
        self._turns.discard(ticket.key, ticket)
        del self._arrivals[ticket]

    def give_way(self, key: str) -> Ticket | None:
        """In a full room: take out the youngest of a key that has at least two more waiting than
        `key`. None when there is none.
        """
        if self._turns.waiting(key) + 1 >= self._turns.longest:
            return None
        ticket = self._turns.pop_youngest_of_longest()
        del self._arrivals[ticket]
        return ticket
