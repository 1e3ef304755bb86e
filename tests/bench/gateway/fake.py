"""An engine that costs almost nothing: chat completions with 20 ms between chunks.

One timer serves all streams: each millisecond it writes the streams of one slot of a wheel of
twenty. A stream that its reader holds up is passed over until there is room again.
`GET /bench/counters` tells what was seen. Each body is read and parsed as a whole, as an engine
has to. What a request wants is in it: so many chunks as "max_tokens", and as "user"

    hold    silence, then an answer that nobody waits for any more
    flood   a hundred chunks instead of each one
    reset   the connection is reset where the stream's end should be
    fail    status 500

Run: `python -m bench.gateway.fake PORT`.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from typing import Any, cast

import uvloop

from bench.gateway import answers

INTERVAL_MS = 20
HOLD_S = 3.0
FLOOD = 100

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


@dataclass
class Counters:
    """`left`: generations whose peer closed before their end."""

    generations: int = 0
    running: int = 0
    left: int = 0


class Wheel:
    """Twenty slots, one of them each millisecond; asleep while nothing streams."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: list[set[Engine]] = [set() for _ in range(INTERVAL_MS)]
        self._streams = 0
        self._at = 0  # the millisecond up to which slots were served

    def add(self, stream: Engine) -> int:
        """Into the slot of now, so that its next turn is one interval away."""
        if not self._streams:
            self._at = self._now()
            self._loop.call_later(0.001, self._tick)
        self._streams += 1
        slot = self._at % INTERVAL_MS
        self._slots[slot].add(stream)
        return slot

    def remove(self, stream: Engine, slot: int) -> None:
        self._slots[slot].discard(stream)
        self._streams -= 1

    def _tick(self) -> None:
        while self._at < self._now():
            self._at += 1
            for stream in tuple(self._slots[self._at % INTERVAL_MS]):
                stream.step()
        if self._streams:
            self._loop.call_later(0.001, self._tick)

    def _now(self) -> int:
        return int(self._loop.time() * 1000)


class Engine(asyncio.Protocol):
    """One connection: requests one after the other."""

    def __init__(self, wheel: Wheel, counters: Counters) -> None:
        self._wheel = wheel
        self._counters = counters
        self._slot: int | None = None
        self._held: asyncio.TimerHandle | None = None
        self._full = False  # the peer reads too slowly
        self._reset()

    def _reset(self) -> None:
        self._buffer = b""
        self._missing = 0  # body bytes still to come
        self._pieces: list[bytes] = []  # of the body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._body(data)
            return
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head, rest = self._buffer[:end], self._buffer[end + 4 :]
        if head.startswith(b"GET "):
            self._buffer = b""
            self._get(head)
            return
        length = _LENGTH.search(head)
        self._missing = int(length[1]) if length else 0
        self._body(rest)

    def _body(self, data: bytes) -> None:
        self._missing -= len(data)
        self._pieces.append(data)
        if self._missing <= 0:
            body = b"".join(self._pieces)
            self._reset()
            self._post(body)

    def _get(self, head: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/bench/counters":
            self._transport.write(answers.whole(json.dumps(asdict(self._counters)).encode()))
        else:
            models = path == b"/v1/models"
            self._transport.write(answers.MODELS if models else answers.HEALTH)

    def _post(self, body: bytes) -> None:
        self._counters.generations += 1
        try:
            asked: dict[str, Any] = json.loads(body)
        except ValueError:
            self._transport.write(answers.REFUSED)
            return
        self._user = asked.get("user")
        if self._user == "fail":
            self._transport.write(answers.FAILED)
        elif self._user == "hold":
            self._counters.running += 1
            self._held = asyncio.get_running_loop().call_later(HOLD_S, self._release)
        elif asked.get("stream"):
            self._begin(asked)
        else:
            self._transport.write(answers.UNARY)

    def _begin(self, asked: dict[str, Any]) -> None:
        self._counters.running += 1
        self._left = asked.get("max_tokens", 16)
        times = FLOOD if self._user == "flood" else 1
        self._tokens = self._left * times
        self._step = answers.STEP * times
        self._usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self._transport.write(answers.STREAM_HEAD)
        self._slot = self._wheel.add(self)

    def step(self) -> None:
        """The next chunk, or the end."""
        if self._full:
            return
        if self._left:
            self._left -= 1
            self._transport.write(self._step)
        elif self._user == "reset":
            self._end()
            self._cut()
        else:
            self._transport.write(answers.stream_end(self._tokens if self._usage else None))
            self._end()

    def _cut(self) -> None:
        """Close with a TCP reset."""
        peer = self._transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _release(self) -> None:
        self._transport.write(answers.UNARY)
        self._end()

    def _end(self) -> bool:
        """Whether something was running."""
        if self._slot is None and self._held is None:
            return False
        if self._slot is not None:
            self._wheel.remove(self, self._slot)
        if self._held is not None:
            self._held.cancel()
        self._slot = self._held = None
        self._counters.running -= 1
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._counters.left += self._end()


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    wheel, counters = Wheel(loop), Counters()
    server = await loop.create_server(
        lambda: Engine(wheel, counters), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
