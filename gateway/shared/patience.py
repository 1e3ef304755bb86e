"""A time-out that does not take this process's own stall for somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

STEPS: Final = 5


async def patiently(seconds: float, work: Coroutine[None, None, None]) -> None:
    """Like asyncio.timeout, but in steps: a time in which this loop stood still counts as one, so
    that an answer that came meanwhile is read. Raises TimeoutError.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def step(left: int) -> None:
        nonlocal timer
        if left:
            timer = loop.call_later(seconds / STEPS, step, left - 1)
        else:
            limit.reschedule(loop.time())

    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(seconds / STEPS, step, STEPS - 1)
        try:
            await work
        finally:
            timer.cancel()
