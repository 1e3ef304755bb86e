"""The limiter of one process: counts in memory, one event loop, no tasks and no timers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gateway.errors import Headers, RateLimited
from gateway.keys import Key
from gateway.limits import told
from gateway.limits.limiter import FREE, Pass, limited, reservation
from gateway.limits.window import WINDOW, Step, Window

NanoClock = Callable[[], int]

# As long as a request that was just counted takes to leave the window.
_FULL: Final = told.duration(WINDOW)


class Count:
    """What one key has in use."""

    __slots__ = ("running", "window")

    def __init__(self) -> None:
        self.running = 0
        self.window = Window()

    def over(self, now: int) -> bool:
        """True when nothing of it counts any more."""
        self.window.move(now)
        return not self.running and not len(self.window)


class LocalPass:
    """See limiter.Pass."""

    __slots__ = ("_count", "_reserved", "_step", "headers")

    def __init__(self, count: Count, step: Step, reserved: int, headers: Headers) -> None:
        self._count = count
        self._step = step
        self._reserved = reserved
        self.headers = headers

    def leave(self, tokens: int | None) -> None:
        count = self._count
        count.running -= 1
        if tokens is not None and tokens != self._reserved:
            count.window.correct(self._step, tokens - self._reserved)


class LocalLimiter:
    """Counts are kept by the key's name: a key whose limits or value change keeps its counts."""

    def __init__(self, clock: NanoClock = time.monotonic_ns) -> None:
        self._clock = clock
        self._counts: dict[str, Count] = {}
        self._swept = clock()

    def __len__(self) -> int:
        """Keys that are counted at this moment."""
        return len(self._counts)

    async def enter(self, key: Key, tokens: int) -> Pass:
        """See limiter.Limiter."""
        if not limited(key):
            return FREE
        now = self._clock()
        count = self._counts.get(key.name) or self._new(key.name, now)
        window = count.window
        window.move(now)
        reserved = reservation(key, tokens)
        refusal = _refusal(key, count, reserved, now)
        if refusal is not None:
            raise refusal
        step = window.add(now, reserved)
        count.running += 1
        headers = told.ratelimit(key, window.requests, window.tokens, _FULL)
        return LocalPass(count, step, reserved, headers)

    def _new(self, name: str, now: int) -> Count:
        """A key not seen for a while; now and then a look for those that are gone for good."""
        if now - self._swept >= WINDOW:
            self._swept = now
            self._counts = {n: c for n, c in self._counts.items() if not c.over(now)}
        count = self._counts[name] = Count()
        return count


def _refusal(key: Key, count: Count, tokens: int, now: int) -> RateLimited | None:
    """The first limit that has no room for one more request of that many tokens."""
    window = count.window
    limit = key.max_concurrency
    if limit is not None and count.running >= limit:
        return told.too_many_at_once(key.name, limit, _used(key, window, now))
    limit = key.requests_per_minute
    if limit is not None and window.requests >= limit:
        wait = window.until_requests(limit - 1, now)
        return told.too_many_requests(key.name, limit, wait, _used(key, window, now))
    limit = key.tokens_per_minute
    if limit is not None and tokens and window.tokens + tokens > limit:
        wait = window.until_tokens(limit - tokens, now)
        return told.too_many_tokens(key.name, limit, wait, _used(key, window, now))
    return None


def _used(key: Key, window: Window, now: int) -> Headers:
    reset = told.duration(window.until_empty(now))
    return told.ratelimit(key, window.requests, window.tokens, reset)
