"""What ends a request from outside: a client that leaves, and the shut-down in order.

SIGTERM ─▶ begin ─▶ /readyz 503, new work 503, streams go on ─▶ wait ≤ GATEWAY_DRAIN_S
        ─▶ cut what is left (error event, or 503 when nothing was sent) ─▶ server stops, exit 0
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.log import Outcome

# After the cut each relay only writes one event; a client that does not even take that is dropped.
CUT_S = 2.0


class Interrupt:
    """Cancels the request's task, once, and remembers why."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.why: Outcome | None = None
        self.armed = True

    def client_left(self) -> None:
        self._cancel("client_left")

    def drained(self) -> None:
        self._cancel("drained")

    def _cancel(self, why: Outcome) -> None:
        if self.armed and self.why is None and self._task is not None:
            self.why = why
            self._task.cancel()

    def taken(self) -> bool:
        """True when this CancelledError is ours; it is then no longer pending."""
        if self.why is None or self._task is None:
            return False
        self._task.uncancel()
        return True


class Drain:
    """Counts running relays and cuts those that outlive the drain time."""

    def __init__(self) -> None:
        self._running: set[Callable[[], None]] = set()
        self._begun = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.failed = False

    @property
    def active(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        self._begun.set()

    def fail(self) -> None:
        """Stop in order, and let the process say that it was not asked to."""
        self.failed = True
        self.begin()

    async def begun(self) -> None:
        """Wait for the shut-down to begin."""
        await self._begun.wait()

    def enter(self, cut: Callable[[], None]) -> None:
        """Register a relay; `cut` ends it early."""
        self._running.add(cut)
        self._empty.clear()

    def leave(self, cut: Callable[[], None]) -> None:
        self._running.discard(cut)
        if not self._running:
            self._empty.set()

    async def finish(self, drain_s: float) -> int:
        """Wait for running relays, then cut the rest; returns how many were cut."""
        if await self._emptied(drain_s):
            return 0
        leftovers = list(self._running)
        for cut in leftovers:
            cut()
        await self._emptied(CUT_S)
        return len(leftovers)

    async def _emptied(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
