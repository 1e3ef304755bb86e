"""The limiter of several workers: the same rules as `local.py`, counted in Valkey.

One script for each request that comes, one for each that goes; see shared/windows.py. While
Valkey is not there, a worker lets in its share of each limit, by its own counts: the Nth part, at
least 1. Then all workers together let in no more than the limit (or one each), and the requests
that were counted in Valkey before, which those counts do not know, come on top once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from gateway.errors import Headers, RateLimited
from gateway.keys import Key
from gateway.limits import told
from gateway.limits.limiter import FREE, Limiter, Pass, limited, reservation
from gateway.shared.link import Link, Word, unheard
from gateway.shared.windows import ENTER, LEAVE

MICROSECOND: Final = 1000  # in nanoseconds


class SharedLimiter:
    """`own`: counts for this worker while Valkey is not there. `workers`: how many share."""

    def __init__(self, link: Link, own: Limiter, workers: int) -> None:
        self._link = link
        self._own = own
        self._workers = workers
        self._running: Counter[str] = Counter()  # by key, however they were let in

    async def enter(self, key: Key, tokens: int) -> Pass:
        """See limiter.Limiter."""
        if not limited(key):
            return FREE
        if not self._link.up:
            return await self._enter_own(key, tokens)
        reserved = reservation(key, tokens)
        answer = await self._asked(key, reserved)
        if answer is None:
            return await self._enter_own(key, tokens)
        return self._judge(key, answer, reserved)

    def leave(self, name: str, step: bytes, correction: int) -> None:
        """A request is over. Without Valkey only the own count changes: the next session begins
        with it. The correction is then not made: the reservation counts until it is a minute old.
        """
        self._running[name] -= 1
        if not self._running[name]:
            del self._running[name]
        if self._link.up:
            self._link.send(LEAVE, (name, step, correction), unheard)

    def held(self) -> list[Word]:
        return [word for pair in self._running.items() for word in pair]

    def lost(self) -> None:
        """Nothing to do: each request asks for itself."""

    def found(self) -> None:
        """Nothing waits here."""

    async def _asked(self, key: Key, reserved: int) -> list[Any] | None:
        """Valkey's answer, None without one. Should the caller go meanwhile, it is as if it had
        left right after.
        """
        limits = (key.max_concurrency, key.requests_per_minute, key.tokens_per_minute)
        words = [key.name, *("" if limit is None else limit for limit in limits), reserved]
        future: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()
        answered = partial(self._entered, key.name, reserved, future)
        self._link.send(ENTER, tuple(words), answered)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # the answer had come in the same instant
                self._undo(key.name, reserved, future.result())
            raise

    def _entered(
        self, name: str, reserved: int, future: asyncio.Future[Any], answer: list[Any] | None
    ) -> None:
        if answer is not None and answer[0] == 0:
            self._running[name] += 1
        if future.cancelled():
            self._undo(name, reserved, answer)
        else:
            future.set_result(answer)

    def _undo(self, name: str, reserved: int, answer: list[Any] | None) -> None:
        if answer is not None and answer[0] == 0:
            self.leave(name, answer[1], -reserved)

    def _judge(self, key: Key, answer: list[Any], reserved: int) -> Pass:
        """The pass, or the refusal with what the client reads."""
        full, step, requests, used, wait, until_empty = answer
        reset = told.duration(until_empty * MICROSECOND)
        headers = told.ratelimit(key, requests, used, reset)
        if full:
            raise _refusal(key, full, wait * MICROSECOND, headers)
        return SharedPass(self, key.name, step, reserved, headers)

    async def _enter_own(self, key: Key, tokens: int) -> Pass:
        share = _share(key, self._workers)
        limit = share.max_concurrency
        if limit is not None and self._running[key.name] >= limit:
            raise told.too_many_at_once(key.name, limit, [])
        entered = await self._own.enter(share, tokens)
        self._running[key.name] += 1
        return OwnPass(self, key.name, entered)


@dataclass(frozen=True, slots=True)
class SharedPass:
    """See limiter.Pass; counted in Valkey."""

    limiter: SharedLimiter
    name: str
    step: bytes
    reserved: int
    headers: Headers

    def leave(self, tokens: int | None) -> None:
        correction = 0 if tokens is None else tokens - self.reserved
        self.limiter.leave(self.name, self.step, correction)


@dataclass(frozen=True, slots=True)
class OwnPass:
    """Let in while Valkey was not there. It may have come back since."""

    limiter: SharedLimiter
    name: str
    own: Pass

    @property
    def headers(self) -> Headers:
        return self.own.headers

    def leave(self, tokens: int | None) -> None:
        self.own.leave(tokens)
        self.limiter.leave(self.name, b"", 0)


def _share(key: Key, workers: int) -> Key:
    """The key with the Nth part of each limit, at least 1."""

    def part(limit: int | None) -> int | None:
        return None if limit is None else max(1, limit // workers)

    return replace(
        key,
        requests_per_minute=part(key.requests_per_minute),
        tokens_per_minute=part(key.tokens_per_minute),
        max_concurrency=part(key.max_concurrency),
    )


def _refusal(key: Key, full: int, wait: int, headers: Headers) -> RateLimited:
    """`full`: which limit, as ENTER numbers them; `wait`: nanoseconds."""
    if full == 1:
        return told.too_many_at_once(key.name, key.max_concurrency or 0, headers)
    if full == 2:
        return told.too_many_requests(key.name, key.requests_per_minute or 0, wait, headers)
    return told.too_many_tokens(key.name, key.tokens_per_minute or 0, wait, headers)
