"""Counts in memory and hands the increments over: never slows a request, never fails one.

    add ─▶ rows of this turn ──taken every 0.25 s──▶ batch on its way ─▶ in the database
                  ▲                                       │
                  └ goes on meanwhile                     └ stays the same until its fate is known

A database that is down costs a row for each hour and combination of labels, up to MOST_ROWS;
past that, further hours are counted into the last one, so that sums stay right.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from gateway.ledger.store import Batch, Labels, Store
from gateway.log import sane

log = logging.getLogger("gateway")

PERIOD_S = 0.25
LONGEST_PAUSE_S = 5.0
SLOW_S = 5.0  # a write that takes longer is reported as one that fails
STOP_S = 2.0
MOST_ROWS = 100_000
HOUR = 3600


class Ledger:
    """`add` from the event loop; `run` until cancelled, then `close`."""

    def __init__(self, store: Store, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self._wall = wall
        self._hour = 0
        self._rows: dict[Labels, list[int]] = {}
        # An empty batch first: whether the database is there is said at the start.
        self._sent: Batch | None = Batch(0, {})
        self._number = 0
        self._writing: asyncio.Future[None] | None = None
        self._trouble = Trouble()

    @property
    def pending(self) -> int:
        """Rows that are not in the database yet."""
        return len(self._rows) + (len(self._sent.rows) if self._sent else 0)

    @property
    def failures(self) -> int:
        """Writes that failed, since the start."""
        return self._trouble.total

    def add(  # noqa: PLR0913, PLR0917 - one for each column
        self,
        key: str,
        model: str,
        route: str,
        outcome: str,
        prompt_tokens: int,
        completion_tokens: int,
        estimated: bool,
    ) -> None:
        """Count one request that has ended. No I/O."""
        hour = int(self._wall()) // HOUR * HOUR
        if hour != self._hour and len(self._rows) < MOST_ROWS:
            self._hour = hour
        labels = (self._hour, key, model, route, outcome)
        counts = self._rows.get(labels)
        if counts is None:
            counts = self._rows[labels] = [0, 0, 0, 0]
        counts[0] += 1
        counts[1] += sane(prompt_tokens)
        counts[2] += sane(completion_tokens)
        counts[3] += estimated

    async def run(self) -> None:
        """Write what was counted, until cancelled."""
        while True:
            done = await self._flush()
            await asyncio.sleep(PERIOD_S if done else self._trouble.pause_s)

    async def close(self) -> None:
        """Write the rest, within STOP_S; what stays behind is logged."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while self._rows or self._sent:
                    if not await self._flush():
                        await asyncio.sleep(PERIOD_S)
                await in_daemon(self._store.close)
        rows = [*self._rows.values(), *(self._sent.rows.values() if self._sent else ())]
        if rows:
            requests, prompt, completion, _ = map(sum, zip(*rows, strict=True))
            log.error(
                "usage ledger: stopped without writing %d requests, %d prompt and %d completion "
                "tokens; the request lines of the log have them",
                requests,
                prompt,
                completion,
            )

    async def _flush(self) -> bool:
        """One attempt to write; False when it failed or hangs. A hanging one is waited for again,
        since two at a time could not be told apart."""
        if self._writing is None:
            batch = self._next()
            if batch is None:
                return True
            self._writing = in_daemon(partial(self._store.write, batch))
        await asyncio.wait({self._writing}, timeout=SLOW_S)
        if not self._writing.done():
            self._trouble.began(f"no answer for {SLOW_S:g} s")
            return False
        error = self._writing.exception()
        self._writing = None
        if error is not None:
            self._trouble.began(self._store.describe(error))
            return False
        self._sent = None
        self._trouble.ended()
        return True

    def _next(self) -> Batch | None:
        """The batch to write: the one whose fate is open, else what was counted since."""
        if self._sent is None and self._rows:
            self._number += 1
            self._sent, self._rows = Batch(self._number, self._rows), {}
        return self._sent


class Trouble:
    """Says once that writing fails and once that it works again. A single failure is none: idle
    connections are cut by whatever lies between, and the second attempt connects anew."""

    def __init__(self) -> None:
        self.total = 0
        self._failures = 0
        self._since = 0.0

    @property
    def pause_s(self) -> float:
        return min(LONGEST_PAUSE_S, PERIOD_S * 2.0 ** min(self._failures - 1, 16))

    def began(self, why: str) -> None:
        self.total += 1
        self._failures += 1
        if self._failures == 1:
            self._since = time.monotonic()
        if self._failures == 2:
            log.error("usage ledger: writing fails (%s); counting goes on in memory", why)

    def ended(self) -> None:
        if self._failures > 1:
            seconds = time.monotonic() - self._since
            log.warning("usage ledger: writing works again, nothing is lost (%.1f s)", seconds)
        self._failures = 0


def in_daemon(work: Callable[[], None]) -> asyncio.Future[None]:
    """The result of `work` in a thread of its own. Unlike asyncio.to_thread it keeps no process
    alive: a database that never answers must not hold up the gateway's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if error is None and not future.done():
            future.set_result(None)
        elif error is not None and not future.done():
            future.set_exception(error)

    def body() -> None:
        result = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
            result = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=body, name="usage-ledger", daemon=True).start()
    return future
