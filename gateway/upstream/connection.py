"""One HTTP/1.1 connection to an engine: an asyncio protocol with httptools framing.

    exchange(request, sink, limits)
      │ write the request
      ▼
    data_received ─▶ httptools ─▶ sink.on_head(head), then sink.on_piece(bytes) once a read
      ▼
    ending                                  what `exchange` does
      whole response                        returns; `reusable` says whether it may be kept
      closed or reset before any byte       raises Died(replied=False)
      closed, reset or bad framing later    raises Died(replied=True)
      silence longer than a limit           raises Silent
      client does not read for as long      raises ClientStalled
      cancelled                             aborts the socket, so the engine sees it at once

A piece goes from the read callback to the client without a task switch or a queue: that is
what makes a token cheap. Between two chunks a read can pass the parser by altogether (`lane`).
`pause` and `resume` are the back-pressure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import httptools

from gateway.errors import Headers
from gateway.lane import Lane
from gateway.upstream.exchange import ClientStalled, Died, Head, Limits, Silent, Sink
from gateway.watchdog import Watchdog

# No body byte in so many bytes: an endless header line, chunk extension or trailer.
MAX_QUIET = 65_536


class Connection(asyncio.Protocol):
    """Serves one exchange at a time. Made by `connect`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watchdog: Watchdog) -> None:
        self._loop = loop
        self._watchdog = watchdog
        self._pieces: list[bytes] = []  # of the body, in what was read last
        self.on_body = self._pieces.append  # the parser calls it as it is, without a frame of ours
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._done: asyncio.Future[None] | None = None
        self._limits = Limits(0, 0)
        self._headers: Headers = []
        self._replied = self._in_body = self._until_close = self._whole = False
        self._head_read = False
        self._paused = False
        self._quiet = 0
        self._chunk_over = False  # the parser is between two chunks
        self._lane: Lane | None = None
        self._events = 0  # of the lane, at the watchdog's last look
        self._read = False  # since the watchdog's last look
        self._last_read = 0.0
        self.reusable = False
        self.exchanges = 0
        self.idle_since = 0.0

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: Iterable[bytes], sink: Sink, limits: Limits) -> None:
        """Send a request and feed its response to `sink` until it is whole."""
        if self._transport is None or self._transport.is_closing():
            raise Died(replied=False)
        self._begin(sink, limits)
        self._done = self._loop.create_future()
        self._transport.writelines(request)
        try:
            await self._done
        finally:
            self._end()

    def pause(self) -> None:
        """Stop reading: what the engine sends waits in the kernel, then in the engine."""
        if self.open and not self._paused:
            self._paused = True
            self._transport.pause_reading()  # type: ignore[union-attr]

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._last_read = self._loop.time()
            if self.open:
                self._transport.resume_reading()  # type: ignore[union-attr]

    def stop(self) -> None:
        """Take what has come for the whole response; the connection is not used again."""
        self.reusable = False
        self._finish()

    def abort(self) -> None:
        """Close now, unsent bytes and all."""
        if self._transport is not None:
            self._transport.abort()

    def _begin(self, sink: Sink, limits: Limits) -> None:
        self.exchanges += 1
        self.reusable = False
        self._sink, self._limits = sink, limits
        self._headers = []
        self._chunk_over = False
        self._pieces.clear()
        self._replied = self._in_body = self._until_close = self._whole = False
        self._head_read = False
        self._quiet = 0
        self._last_read = self._loop.time()
        self._watchdog.add(self)

    def _end(self) -> None:
        self._watchdog.remove(self)
        self._sink = self._done = None
        self._take(None)
        self.resume()
        if not self.reusable:
            self.abort()

    def _finish(self, error: Exception | None = None) -> None:
        if self._done is None or self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self.reusable = False
            self._done.set_exception(error)

    def check(self, now: float) -> None:
        """A look at the silence, by the watchdog."""
        events = self._lane.events if self._lane is not None else 0
        if self._read or events != self._events:
            self._read, self._events, self._last_read = False, events, now
            return
        silence = now - self._last_read
        if silence >= (self._limits.idle_s if self._in_body else self._limits.first_byte_s):
            self._finish(ClientStalled() if self._paused else Silent())
        elif self._sink is not None and not self._paused:
            self._sink.on_silence(silence)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        if sink is None or self._whole:  # nobody asked: whatever it is, it is not an answer
            self.reusable = False
            self.abort()
            return
        self._replied = self._read = True
        broken = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            broken = True
        pieces = self._pieces
        if pieces:
            piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._in_body, self._quiet = True, 0
            sink.on_piece(piece)
        else:
            self._quiet += len(data)
            broken = broken or self._quiet > MAX_QUIET
        if self._whole:
            self.reusable = self.reusable and not broken
            self._finish()
        elif broken:
            self._finish(Died(replied=True))
        elif self._chunk_over and data.endswith(b"\r\n"):
            self._take(sink.lane())
            return
        self._take(None)

    def _take(self, lane: Lane | None) -> None:
        """From now on what is read goes to `lane` first, None: to us. The transport keeps what it
        calls, so it is told anew.
        """
        if lane is self._lane:
            return
        self._lane = lane
        if lane is None:
            del self.data_received
        else:
            lane.otherwise = partial(Connection.data_received, self)
            self.data_received = lane.carry  # type: ignore[method-assign]
        if self._transport is not None:
            self._transport.set_protocol(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._until_close and exc is None:
            self._finish()
        else:
            self._finish(Died(self._replied))
        self._transport = None

    # httptools callbacks

    def on_message_begin(self) -> None:
        if self._whole:  # bytes after the response: whose, nobody can tell
            self.reusable = False

    def on_chunk_header(self) -> None:
        self._chunk_over = False

    def on_chunk_complete(self) -> None:
        self._chunk_over = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_read:  # what comes later is a trailer, or nobody's
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # interim: the real head follows
            self._headers = []
            return
        if self._whole:  # a second answer nobody asked for
            self.reusable = False
            raise httptools.HttpParserError("bytes after the response")
        self._head_read = True
        head = Head(status, self._headers)
        framed = b"content-length" in head.fields or b"transfer-encoding" in head.fields
        self._until_close = not framed and status not in {204, 304}
        if self._sink is not None:
            self._sink.on_head(head)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return
        self._whole = True
        unsent = self._transport is not None and self._transport.get_write_buffer_size()
        self.reusable = self._parser.should_keep_alive() and not unsent


async def connect(host: str, port: int, timeout_s: float, watchdog: Watchdog) -> Connection:
    """A new connection. OSError (TimeoutError among them) when the engine does not accept."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, connection = await loop.create_connection(lambda: Connection(loop, watchdog), host, port)
    return connection
