"""Control calls: a small GET to an engine or its launcher, on a connection of its own.

A kept connection that went stale would look like an engine that is down. A general HTTP client
would do, but once a second for each engine it costs more than forty tokens.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from gateway.upstream.connection import Connection, connect
from gateway.upstream.exchange import Died, Head, Limits
from gateway.watchdog import Watchdog

# /v1/models of an engine with many adapters is some hundred kilobytes.
MAX_BODY = 4 << 20


class Unanswered(Exception):
    """There was no whole answer: refused, closed, or larger than MAX_BODY."""


class Reply:
    """A response as it is collected; the sink of its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = 0
        self.body = bytearray()

    def on_head(self, head: Head) -> None:
        self.status = head.status

    def on_piece(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > MAX_BODY:
            self._connection.stop()

    def lane(self) -> None:
        """All of it is collected."""

    def on_silence(self, seconds: float) -> None:
        """`ask` has a limit of its own."""


async def ask(url: str, timeout_s: float, watchdog: Watchdog) -> Reply:
    """GET `url` (http). Raises TimeoutError after `timeout_s`, Unanswered."""
    parts = urlsplit(url)
    head = f"GET {parts.path or '/'} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(timeout_s):
            connection = await connect(parts.hostname or "", parts.port or 80, timeout_s, watchdog)
            reply = Reply(connection)
            try:
                limits = Limits(2 * timeout_s, 2 * timeout_s)
                await connection.exchange((head.encode("ascii"),), reply, limits)
            finally:
                connection.abort()
    except TimeoutError:
        raise
    except (OSError, Died):
        raise Unanswered from None
    if len(reply.body) > MAX_BODY:
        raise Unanswered
    return reply
