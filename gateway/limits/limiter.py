"""The seam between the data path and whoever counts: enter, then leave once."""

from __future__ import annotations

from typing import Protocol

from gateway.errors import Headers
from gateway.keys import Key


class Pass(Protocol):
    """One request that was let in."""

    @property
    def headers(self) -> Headers:
        """x-ratelimit-* as of entering, for the answer, whatever it becomes."""

    def leave(self, tokens: int | None) -> None:
        """The request is over; exactly once. `tokens`: what it really used, prompt and completion
        together, 0 when no engine saw it; None: not known, so the reservation stands.
        """


class Limiter(Protocol):
    """Counts by key. A key without limits costs nothing."""

    async def enter(self, key: Key, tokens: int) -> Pass:
        """Let a request in and reserve `tokens` (an estimate). Raises RateLimited; then nothing
        was counted.
        """


def reservation(key: Key, tokens: int) -> int:
    """At most the whole limit: a large request waits for an empty window and not for ever."""
    limit = key.tokens_per_minute
    return tokens if limit is None or tokens < limit else limit


class FreePass:
    """For a key without limits; one for all."""

    __slots__ = ()

    @property
    def headers(self) -> Headers:
        return []

    def leave(self, tokens: int | None) -> None:
        """Nothing was counted."""


FREE = FreePass()


def limited(key: Key) -> bool:
    """True when the key has any limit."""
    return not (
        key.requests_per_minute is None
        and key.tokens_per_minute is None
        and key.max_concurrency is None
    )
