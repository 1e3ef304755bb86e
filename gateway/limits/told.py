"""What a client reads of a key's limits, in the form that OpenAI's clients know. Pure.

Times are nanoseconds. The headers say how much is left after this request, and when all of it
would be back if nothing more were sent. Names of limits and of keys are told, never a key.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import Headers, RateLimited, TokensLimited
from gateway.keys import Key

SECOND: Final = 1_000_000_000
MILLISECOND: Final = 1_000_000
# A concurrent request may end at any moment; nobody knows when.
BUSY_RETRY_S = 1
NOTHING: Final = b"0s"


def ratelimit(key: Key, requests: int, tokens: int, reset: bytes) -> Headers:
    """Three headers for each limit per minute that the key has. `requests`, `tokens`: what counts
    at this moment; `reset`: how long until nothing of it does.
    """
    found: Headers = []
    limit = key.requests_per_minute
    if limit is not None:
        left = limit - requests if requests < limit else 0
        found.append((b"x-ratelimit-limit-requests", b"%d" % limit))
        found.append((b"x-ratelimit-remaining-requests", b"%d" % left))
        found.append((b"x-ratelimit-reset-requests", reset if requests else NOTHING))
    limit = key.tokens_per_minute
    if limit is not None:
        left = limit - tokens if tokens < limit else 0
        found.append((b"x-ratelimit-limit-tokens", b"%d" % limit))
        found.append((b"x-ratelimit-remaining-tokens", b"%d" % left))
        found.append((b"x-ratelimit-reset-tokens", reset if tokens else NOTHING))
    return found


def duration(nanoseconds: int) -> bytes:
    """As OpenAI writes it: 20ms, 1s, 1m0s, 6m0s. Whole seconds, rounded up, from one second on."""
    if nanoseconds <= 0:
        return NOTHING
    if nanoseconds <= 999 * MILLISECOND:
        return b"%dms" % -(-nanoseconds // MILLISECOND)
    minutes, seconds = divmod(whole_seconds(nanoseconds), 60)
    return b"%dm%ds" % (minutes, seconds) if minutes else b"%ds" % seconds


def whole_seconds(nanoseconds: int) -> int:
    """Rounded up, so that who waits as long has waited long enough; at least 1."""
    return max(1, -(-nanoseconds // SECOND))


def too_many_requests(name: str, limit: int, wait: int, headers: Headers) -> RateLimited:
    retry = whole_seconds(wait)
    text = f"Key {name!r} has used its {limit} requests per minute. Please retry in {retry} s."
    return RateLimited(text, retry, headers)


def too_many_tokens(name: str, limit: int, wait: int, headers: Headers) -> RateLimited:
    retry = whole_seconds(wait)
    text = (
        f"This request does not fit what is left of the {limit} tokens per minute of key {name!r}."
        f" Please retry in {retry} s."
    )
    return TokensLimited(text, retry, headers)


def too_many_at_once(name: str, limit: int, headers: Headers) -> RateLimited:
    text = f"Key {name!r} has {limit} requests running, its max_concurrency. Please retry."
    return RateLimited(text, BUSY_RETRY_S, headers)
