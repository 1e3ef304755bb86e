"""The gate of the waiting room, shut while no engine is ready, and how long anybody waits.

    clock      runs while          limit                     past it
    ───────    ────────────────    ──────────────────────    ──────────────────────────
    queue      an engine is ready  GATEWAY_QUEUE_TIMEOUT_S   Overloaded: no slot in time
    hold       none is             GATEWAY_HOLD_S            NotReady, with the phase

Only one of the two runs at a time, so a swap in the middle of a wait costs nothing of the queue
time, and a request that came just before it waits as long as one that came just after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.errors import NotReady, Overloaded, Unavailable

# A slot frees up every few hundred milliseconds under load; half a minute would be idle capacity.
RETRY_AFTER_S = 2
# An engine takes a minute or more; a sooner try only meets the same full queue.
HOLD_RETRY_AFTER_S = 10
FULL = "The server is at capacity and its queue is full."
GAVE_WAY = "This key has most of it, so its newest request gave way to another key's."

Refuse = Callable[[Unavailable], None]


@dataclass(slots=True, eq=False)
class Wait:
    """One request's patience and what is used up of it, in seconds. `again`: it had a slot, and the
    engine went away before it could begin; it goes first, and needs no free place in the queue.
    """

    queue_s: float
    hold_s: float
    queued_s: float = 0.0
    held_s: float = 0.0
    again: bool = False


@dataclass(slots=True)
class _Running:
    since: float
    timer: asyncio.TimerHandle
    refuse: Refuse


def unknown() -> str:
    """A phase that nobody tells."""
    return "waiting"


class Gate:
    """Opens and shuts for all who wait. `phase`: what to tell those who waited in vain."""

    def __init__(self, phase: Callable[[], str] = unknown) -> None:
        self._phase = phase
        self._running: dict[Wait, _Running] = {}
        self.open = True

    def turn(self, ready: bool) -> None:
        """Open or shut: the other clock runs from now on."""
        if ready is self.open:
            return
        waits = [(wait, running.refuse) for wait, running in self._running.items()]
        for wait, _ in waits:
            self.stop(wait)
        self.open = ready
        for wait, refuse in waits:
            self.start(wait, refuse)

    def start(self, wait: Wait, refuse: Refuse) -> None:
        """The wait begins; `refuse` is called when it was too long. To be ended by `stop`."""
        loop = asyncio.get_running_loop()
        left = wait.queue_s - wait.queued_s if self.open else wait.hold_s - wait.held_s
        timer = loop.call_later(max(0.0, left), self._late, wait, refuse)
        self._running[wait] = _Running(loop.time(), timer, refuse)

    def stop(self, wait: Wait) -> None:
        """It waits no more; what it waited is used up."""
        running = self._running.pop(wait)
        running.timer.cancel()
        waited = asyncio.get_running_loop().time() - running.since
        if self.open:
            wait.queued_s += waited
        else:
            wait.held_s += waited

    def full(self) -> Overloaded:
        """There is no place to wait in."""
        return self._overloaded(FULL)

    def gave_way(self) -> Overloaded:
        """Its place went to another key."""
        return self._overloaded(f"{FULL} {GAVE_WAY}")

    def _overloaded(self, words: str) -> Overloaded:
        if self.open:
            return Overloaded(words, RETRY_AFTER_S)
        return Overloaded(
            f"No engine is ready (phase: {self._phase()}). {words}", HOLD_RETRY_AFTER_S
        )

    def _late(self, wait: Wait, refuse: Refuse) -> None:
        if self.open:
            refuse(Overloaded(f"No slot became free within {wait.queue_s:g} s.", RETRY_AFTER_S))
        else:
            refuse(NotReady(self._phase()))
