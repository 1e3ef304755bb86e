"""One clock for all silences: instead of a timer for each request, a look at each in turn."""

from __future__ import annotations

import asyncio
from typing import Protocol

# How late a time-out may come, in seconds. A thousand looks take a fraction of a millisecond.
TICK_S = 0.1


class Watched(Protocol):
    def check(self, now: float) -> None:
        """Called each tick with the loop's time; must not block or raise."""


class Watchdog:
    """Looks at everything it watches each TICK_S."""

    def __init__(self) -> None:
        self._watched: dict[Watched, None] = {}

    def add(self, watched: Watched) -> None:
        self._watched[watched] = None

    def remove(self, watched: Watched) -> None:
        self._watched.pop(watched, None)

    async def run(self) -> None:
        """Until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(TICK_S)
            for watched in list(self._watched):
                watched.check(now())
