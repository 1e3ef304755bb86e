"""The client's connection: uvicorn's HTTP/1.1 protocol, and the relay's own way through it.

An ASGI message costs a dict, a coroutine and a StopIteration. A streamed token is one write, so
the relay writes to the transport itself, from the callback that read the token:

    start(status, headers) ─▶ write(piece) … ─▶ finish()      then uvicorn goes on as usual
    on_left     the client closed before finish() and drained()
    on_paused   it reads too slowly; write() still takes what was read already
    on_free     it reads again

Everything else (parsing, keep-alive, pipelining, time-outs) stays uvicorn's, and so do routes off
the hot path, which use ASGI as usual. The few attributes of uvicorn used here are its own names;
its version is locked, and tests/integration/gateway holds the behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from gateway.errors import Headers, InvalidRequest, error_headers
from gateway.forms import api_of, error_body
from gateway.lane import Lane

# Request line and headers together; nginx's own limit is 8 kB a line and 32 kB in all.
MAX_HEAD = 65_536
# Requests behind the one being answered until reading stops, and with it the sight of a client that
# leaves.
MAX_AHEAD = 4
# Where a route finds the connection in its ASGI scope.
IN_SCOPE = "gateway.client"


def nothing() -> None:
    """A hook that nobody has taken."""


class ClientConnection(HttpToolsProtocol):
    """One connection of a client; it answers one request at a time."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""  # the target, as far as it has come
        self._quiet = 0  # bytes since the parser last called back
        self._head = 0  # bytes of the head so far
        self._chunked = False
        self._cycle: RequestResponseCycle  # the request being answered; `cycle`: parsed last
        self._finishing = False  # all was written, the client has yet to take it
        self.gone = False  # the connection is lost
        self._drained: asyncio.Future[None] | None = None
        self.lane: Lane | None = None  # of the answer
        self.on_left: Callable[[], None] = nothing
        self.on_paused: Callable[[], None] = nothing
        self.on_free: Callable[[], None] = nothing

    # What the relay uses.

    def whole_body(self) -> bytes | None:
        """The request body when all of it is here, else None: read it with `receive`."""
        cycle = self._cycle
        return None if cycle.more_body else bytes(cycle.body)

    def watch(self, on_left: Callable[[], None]) -> None:
        """Call `on_left` should the client go. Reads on, or we would not see it."""
        self.on_left = on_left
        self.flow.resume_reading()
        if self.gone:
            on_left()

    def start(self, status: int, headers: Headers, chunked: bool, data: bytes = b"") -> None:
        """Status line and headers, and the body's beginning in the same write. `chunked`: framing
        says where the body ends, not a length; for a client of HTTP/1.0, which knows no chunks,
        the end of the connection does.
        """
        cycle = self._cycle
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        self._chunked = chunked = chunked and cycle.scope["http_version"] != "1.0"
        lines = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        if chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        if data:
            lines.append(self._framed(data))
        self._write(b"".join(lines))

    def write(self, data: bytes) -> None:
        """A piece of the body. Not empty: that would be the end."""
        self._write(self._framed(data))

    def finish(self) -> None:
        """The answer is complete; the connection goes on once the client has taken it."""
        if self._chunked:
            self._write(b"0\r\n\r\n")
        self._finishing = True
        if not self.flow.write_paused:
            self._complete()

    async def drained(self) -> None:
        """Wait until a slow client has taken what was written."""
        if self.flow.write_paused and not self.gone:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def make_lane(self, usage_asked: bool) -> Lane | None:
        """A fast path for what is framed already, None where it may not be used."""
        if self._chunked and not self.gone:
            self.lane = Lane(self.transport.write, usage_asked)
        return self.lane

    def release(self, on_left: Callable[[], None]) -> None:
        """The relay that watches with `on_left` is done; perhaps the next one watches already."""
        if self.on_left == on_left:
            self._let_go()

    def _let_go(self) -> None:
        self.on_left = self.on_paused = self.on_free = nothing
        self.lane = None

    def abort(self) -> None:
        """Close now, unsent bytes and all."""
        self.transport.abort()

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _write(self, data: bytes) -> None:
        if not self.gone:
            self.transport.write(data)

    def _complete(self) -> None:
        """What uvicorn does at the end of an answer."""
        cycle = self._cycle
        self._finishing = False
        self._let_go()
        if self.gone:
            return
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    # uvicorn and the event loop.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._cycle = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.on_paused()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.on_free()
        if self._finishing:
            self._complete()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if self.lane is not None:
            self.lane.close()
        super().connection_lost(exc)
        if self.cycle is not None:  # uvicorn tells the one parsed last
            self._cycle.disconnected = not self._cycle.response_complete
        if self.scope is not None:
            # Else a cycle that only the collector could free.
            self.scope.pop(IN_SCOPE, None)  # type: ignore[misc]
        self.on_left()
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._quiet += len(data)
        super().data_received(data)
        if 0 < len(self.pipeline) <= MAX_AHEAD and len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()  # uvicorn stopped it
        if self._quiet > MAX_HEAD or self._head > MAX_HEAD:
            self.send_400_response("The request head is too large.")

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()
        self.scope[IN_SCOPE] = self  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        self._quiet = 0
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # uvicorn's own lines, without the call to them: a request has a dozen headers.
        self._quiet = 0
        self._head += len(name) + len(value)
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._quiet = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._quiet = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse in JSON and close. In the middle of an answer: only close."""
        if self.transport.is_closing():
            return
        if not self._answering():
            path = self.url.partition(b"?")[0].decode("latin-1")
            body = error_body(InvalidRequest(msg), api_of(path), None)
            headers = [*error_headers(InvalidRequest(msg), body), (b"connection", b"close")]
            lines = [b"%b: %b\r\n" % each for each in headers]
            self.transport.write(b"".join([STATUS_LINE[400], *lines, b"\r\n", body]))
        self.transport.close()

    def _answering(self) -> bool:
        """An answer has begun and is not complete. (`cycle` may be a request behind it.)"""
        cycle = getattr(self, "_cycle", None)
        return cycle is not None and cycle.response_started and not cycle.response_complete
