"""Many HTTP clients on one event loop: read everything, read slowly, or leave.

result = await visit(port, build("POST", CHAT, AUTH, body), Manner(leave_after_bytes=100))
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import httptools

How = Literal["close", "reset", "half-close"]


@dataclass(frozen=True)
class Manner:
    """How a client behaves. Bytes count those of the answer, its head included."""

    leave_after_s: float | None = None  # from the moment the request is sent
    leave_after_bytes: int | None = None
    how: How = "close"
    receive_buffer: int | None = None  # bytes; small: the server soon waits for us
    pause_s: float = 0.0  # between two reads
    send_only: int | None = None  # that many bytes of the request


READER = Manner()


@dataclass
class Result:
    """What a client saw. `whole`: the framing of the answer ended."""

    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False
    left: bool = False
    ended_at: float = 0.0

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)


class Visitor(asyncio.Protocol):
    """One request, one answer, one connection."""

    def __init__(self, request: bytes, manner: Manner) -> None:
        self._request = request
        self._manner = manner
        self._parser = httptools.HttpResponseParser(self)
        self._taken = 0
        self._timers: list[asyncio.TimerHandle] = []
        self.result = Result()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request[: self._manner.send_only])
        if self._manner.leave_after_s is not None:
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(self._manner.leave_after_s, self.leave))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._taken += len(data)
        limit = self._manner.leave_after_bytes
        if self.result.whole:
            self._transport.close()
        elif limit is not None and self._taken >= limit and not self.result.left:
            self.leave()
        elif self._manner.pause_s:
            self._transport.pause_reading()
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(self._manner.pause_s, self._read_on))

    def leave(self) -> None:
        """Go now, in the chosen way."""
        if self.result.whole or self._transport.is_closing():
            return
        self.result.left = True
        if self._manner.how == "half-close":
            self._transport.write_eof()
            return
        if self._manner.how == "reset":
            linger = struct.pack("ii", 1, 0)
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()
        self.result.ended_at = time.monotonic()
        if not self.ended.done():
            self.ended.set_result(None)

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # httptools callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self.result.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.result.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.result.body += data

    def on_message_complete(self) -> None:
        self.result.whole = True


async def enter(port: int, request: bytes, manner: Manner = READER) -> Visitor:
    """Connect and send; the answer is read from now on. OSError when nobody listens."""
    sock = socket.socket()
    sock.setblocking(False)
    if manner.receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, manner.receive_buffer)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(sock, ("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    _, visitor = await loop.create_connection(lambda: Visitor(request, manner), sock=sock)
    return visitor


async def visit(port: int, request: bytes, manner: Manner = READER) -> Result:
    """One request from start to end."""
    visitor = await enter(port, request, manner)
    await visitor.ended
    return visitor.result


async def visit_all(port: int, request: bytes, size: int) -> list[Result]:
    """The same request that many times at once."""
    return await asyncio.gather(*(visit(port, request) for _ in range(size)))


async def streaming(port: int, request: bytes, size: int, manner: Manner = READER) -> list[Visitor]:
    """That many streams, each with its first bytes."""
    visitors = [await enter(port, request, manner) for _ in range(size)]
    await until(lambda: all(one.result.body for one in visitors))
    return visitors


async def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Poll until true; TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is in other processes
            await asyncio.sleep(0.01)


async def results_of(visitors: Sequence[Visitor], timeout_s: float = 30.0) -> list[Result]:
    """Wait for the end of each; TimeoutError."""
    async with asyncio.timeout(timeout_s):
        await asyncio.gather(*(one.ended for one in visitors))
    return [one.result for one in visitors]
