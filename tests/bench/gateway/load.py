"""The clients: raw protocols, so that one core carries them together with the fake engine.

Each run returns what it saw. A client that was cut off, refused or kept waiting is counted as
failed, never dropped.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar, cast

from bench.gateway.fake import INTERVAL_MS

CHAT = "/v1/chat/completions"
# Streams begin one after the other within this time, as they would in life.
RAMP_S = 0.5
# How long after its due time an answer may still end.
PATIENCE_S = 60.0

P = TypeVar("P", bound=asyncio.Protocol)

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


@dataclass(frozen=True)
class Target:
    port: int
    key: str = ""


@dataclass(frozen=True)
class StreamRun:
    """`rate`: chunks a second while all streams ran; `chunks`: all of them, whole run."""

    rate: float
    chunks: int
    complete: int
    failed: int


@dataclass(frozen=True)
class UnaryRun:
    """`latencies`: seconds, of those that were answered within `seconds`."""

    rate: float
    latencies: list[float] = field(repr=False)
    complete: int
    failed: int


def post(target: Target, body: bytes) -> bytes:
    """The bytes of one request."""
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1:{target.port}\r\n"
        f"authorization: Bearer {target.key}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def chat_body(content: str = "Name the capital of France.", **wishes: object) -> bytes:
    """A chat request; `wishes`: further fields."""
    messages = [{"role": "user", "content": content}]
    return json.dumps({"model": "m", **wishes, "messages": messages}).encode()


class Events:
    """Counts events in a stream of pieces: each ends with an empty line."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, data: bytes, before: bytes) -> None:
        """`before`: the byte ahead of `data`."""
        self.total += data.count(b"\n\n") + (before == b"\n" and data.startswith(b"\n"))


class Stream(asyncio.Protocol):
    """One streamed answer on a connection of its own. `ended`: True when it was whole."""

    def __init__(self, request: bytes, events: Events) -> None:
        self._request = request
        self._events = events
        self._tail = b""
        self._status_ok = False
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[bool] = loop.create_future()
        self.ended: asyncio.Future[bool] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._events.add(data, self._tail[-1:])
        if not self._tail:
            self._status_ok = data.startswith(b"HTTP/1.1 200")
            self.started.set_result(self._status_ok)
        self._tail = data if len(data) >= 64 else (self._tail + data)[-64:]
        if self._tail.endswith(b"0\r\n\r\n"):
            done = b"data: [DONE]\n\n" in self._tail[-64:]
            self.ended.set_result(self._status_ok and done)
            self._transport.close()
        elif not self._status_ok:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.started, self.ended):
            if not future.done():
                future.set_result(False)

    def leave(self) -> None:
        self._transport.close()


class Caller(asyncio.Protocol):
    """Asks again as soon as it is answered, until the deadline (loop time)."""

    def __init__(self, request: bytes, deadline: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._deadline = deadline
        self._buffer = b""
        self.latencies: list[float] = []
        self.late = 0  # answers after the deadline
        self.ended: asyncio.Future[bool] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._asked = perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._buffer, 0, end)
        if length is None or not self._buffer.startswith(b"HTTP/1.1 200"):
            self._transport.close()
        elif len(self._buffer) >= end + 4 + int(length[1]):
            self._buffer = b""
            self._answered()

    def _answered(self) -> None:
        now = self._loop.time()
        if now < self._deadline:
            self.latencies.append(perf_counter() - self._asked)
            self._ask()
        else:
            self.late += 1
            self.ended.set_result(True)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(False)


async def run_streams(
    target: Target, streams: int, tokens: int, midway: Callable[[], None] = lambda: None
) -> StreamRun:
    """`streams` answers of `tokens` chunks each. `midway` is called while all of them run."""
    loop = asyncio.get_running_loop()
    events = Events()
    request = post(target, chat_body(stream=True, max_tokens=tokens))
    lasting_s = tokens * INTERVAL_MS / 1000
    ramp_s = min(RAMP_S, lasting_s / 4)
    begin = loop.time()
    clients: list[Stream] = []
    for number in range(streams):
        await _until(begin + ramp_s * number / streams)
        clients.append(await _connect(target, lambda: Stream(request, events)))
    start, seen = loop.time(), events.total
    await _until(begin + lasting_s - 0.1)
    rate = (events.total - seen) / (loop.time() - start)
    midway()
    whole = await _ended([client.ended for client in clients])
    for client in clients:
        client.leave()
    return StreamRun(rate, events.total, whole, streams - whole)


async def run_unary(target: Target, callers: int, seconds: float, body: bytes) -> UnaryRun:
    """Closed loop: each caller has one request under way."""
    deadline = asyncio.get_running_loop().time() + seconds
    request = post(target, body)
    clients = [await _connect(target, lambda: Caller(request, deadline)) for _ in range(callers)]
    whole = await _ended([client.ended for client in clients])
    latencies = [each for client in clients for each in client.latencies]
    complete = len(latencies) + sum(client.late for client in clients)
    return UnaryRun(len(latencies) / seconds, latencies, complete, callers - whole)


async def leave_streams(target: Target, streams: int, body: bytes, after_start: bool) -> int:
    """Begin `streams` answers and leave them, after their first bytes or before. How many began."""
    request = post(target, body)
    clients = [await _connect(target, lambda: Stream(request, Events())) for _ in range(streams)]
    if after_start:
        await _ended([client.started for client in clients])
    await asyncio.sleep(0.3)  # every request is at the engine, streams are under way
    under_way = sum(not client.ended.done() for client in clients)
    for client in clients:
        client.leave()
    return under_way


async def get(port: int, path: str, timeout_s: float = 5.0) -> tuple[int, bytes]:
    """Status and body of a small answer. OSError or TimeoutError when there is none."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await (reader.readexactly(int(length[1])) if length else reader.read())
            return int(head.split(b" ", 2)[1]), body
        finally:
            writer.close()


async def _connect(target: Target, factory: Callable[[], P]) -> P:
    _, protocol = await asyncio.get_running_loop().create_connection(
        factory, "127.0.0.1", target.port
    )
    return protocol


async def _until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))


async def _ended(futures: list[asyncio.Future[bool]]) -> int:
    """How many came out well, within the patience."""
    done, _ = await asyncio.wait(futures, timeout=PATIENCE_S)
    return sum(future.result() for future in done)
