"""From a request to what the relay takes: body within bounds, headers of the allow-list."""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from gateway.client import ClientConnection
from gateway.errors import (
    BodyTooLarge,
    Headers,
    Overloaded,
    UploadStalled,
)
from gateway.log import Record

# What an engine may see of a client. No key, no cookie, no Host, no hop-by-hop header.
FORWARDED = frozenset(
    b"content-type accept traceparent tracestate anthropic-version anthropic-beta".split()
)
# nginx hands over whole bodies; straight from a client a pause this long is a dead upload.
UPLOAD_IDLE_S = 30.0


class Budget:
    """Bytes of request bodies held at one time, all requests together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, size: int) -> None:
        if self.held + size > self._limit:
            raise Overloaded("The server holds too many large requests.", retry_after_s=2)
        self.held += size

    def give_back(self, size: int) -> None:
        self.held -= size


class Upload:
    """One request's body on its way in."""

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self.taken = 0  # bytes of the budget

    def release(self) -> None:
        """The body is not held any more."""
        self._budget.give_back(self.taken)

    async def read(
        self, client: ClientConnection, receive: Receive, headers: Headers
    ) -> bytes | None:
        """The whole body, chunked or not; None when the client left. Raises BodyTooLarge early."""
        body = client.whole_body()
        if body is None:
            if _declared(headers) > self._limit:
                raise _too_large(self._limit)
            return await self._parts(receive)
        self._take(len(body))
        return body

    async def _parts(self, receive: Receive) -> bytes | None:
        parts: list[bytes] = []
        more = True
        try:
            async with asyncio.timeout(UPLOAD_IDLE_S) as idle:
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    self._take(len(part))
                    parts.append(part)
                    more = message.get("more_body", False)
                    idle.reschedule(asyncio.get_running_loop().time() + UPLOAD_IDLE_S)
        except TimeoutError:
            raise UploadStalled(f"No body bytes came for {UPLOAD_IDLE_S:g} s.") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, size: int) -> None:
        self._budget.take(size)
        self.taken += size
        if self.taken > self._limit:
            raise _too_large(self._limit)


def header_lines(headers: Headers, record: Record) -> bytes:
    """Request header lines for an engine: the allow-list, each once, and the request id."""
    first: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in FORWARDED:
            first.setdefault(name, value)
    lines = [b"%b: %b\r\n" % each for each in first.items()]
    return b"".join([*lines, b"x-request-id: %b\r\n" % record.request_id.encode()])


def _declared(headers: Headers) -> int:
    """Content-Length, checked by the server's parser; 0 when there is none."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {limit} bytes.")
