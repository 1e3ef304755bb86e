"""From a request to what the relay takes: body within bounds, headers of the allow-list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Receive

from gateway.errors import (
    BodyTooLarge,
    Headers,
    InvalidRequest,
    ModelNotAllowed,
    Overloaded,
    UploadStalled,
)
from gateway.keys import Key
from gateway.log import Record

# What an engine may see of a client. No key, no cookie, no Host, no hop-by-hop header.
FORWARDED = (
    b"content-type",
    b"accept",
    b"traceparent",
    b"tracestate",
    b"anthropic-version",
    b"anthropic-beta",
)
# nginx hands over whole bodies; straight from a client a pause this long is a dead upload.
UPLOAD_IDLE_S = 30.0


class Budget:
    """Bytes of request bodies held at one time, all requests together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.held -= lease.taken

    def take(self, size: int) -> None:
        if self.held + size > self._limit:
            raise Overloaded("The server holds too many large requests.", retry_after_s=2)
        self.held += size


class Lease:
    """One request's share of the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, size: int) -> None:
        self._budget.take(size)
        self.taken += size


async def read_body(receive: Receive, headers: Headers, limit: int, lease: Lease) -> bytes | None:
    """The whole body, chunked or not; None when the client left. Raises BodyTooLarge early."""
    if _declared(headers) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    more = True
    try:
        async with asyncio.timeout(UPLOAD_IDLE_S) as idle:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part = message.get("body", b"")
                lease.take(len(part))
                if lease.taken > limit:
                    raise _too_large(limit)
                parts.append(part)
                more = message.get("more_body", False)
                idle.reschedule(asyncio.get_running_loop().time() + UPLOAD_IDLE_S)
    except TimeoutError:
        raise UploadStalled(f"No body bytes came for {UPLOAD_IDLE_S:g} s.") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def header_lines(headers: Headers, record: Record) -> bytes:
    """Request header lines for an engine: the allow-list, each once, and the request id."""
    first: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in FORWARDED:
            first.setdefault(name, value)
    lines = [b"%b: %b\r\n" % each for each in first.items()]
    return b"".join([*lines, b"x-request-id: %b\r\n" % record.request_id.encode()])


def check_model(key: Key, body: bytes, default: str | None) -> None:
    """For a key with an allow-list: the body names one of its models, or leaves it to `default`,
    the name that the engine serves first. Raises InvalidRequest or ModelNotAllowed.
    """
    if key.models is None:
        return
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("The request body is not valid JSON.") from None
    model = parsed.get("model") if isinstance(parsed, dict) else ""
    named = default if model is None else model
    if not isinstance(named, str) or named not in key.models:
        raise ModelNotAllowed("This API key may not use that model.")


def _declared(headers: Headers) -> int:
    """Content-Length, checked by the server's parser; 0 when there is none."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {limit} bytes.")
