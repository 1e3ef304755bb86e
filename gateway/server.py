"""uvicorn, with our shut-down order and JSON for what its parser refuses.

uvicorn closes its listeners first and waits for streams afterwards, without a word to them;
here a SIGTERM first turns us not ready, drains, and only then lets uvicorn stop. The exit code
of an orderly stop is 0.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from types import FrameType

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.drain import Drain
from gateway.errors import InvalidRequest, error_headers
from gateway.forms import api_of, error_body

log = logging.getLogger("gateway")

# Longer than nginx keeps an idle connection to us (60 s), or it would meet a closing socket.
KEEP_ALIVE_S = 75
# After the drain only idle connections are left.
STOP_S = 5
# Request line and headers together; nginx's own limit is 8 kB a line and 32 kB in all.
MAX_HEAD = 65_536


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 server protocol, with a bound on heads and JSON errors."""

    _quiet = 0  # bytes since the parser last called back
    _head = 0  # bytes of the head so far
    url = b""  # the target, as far as it has come

    def data_received(self, data: bytes) -> None:
        self._quiet += len(data)
        super().data_received(data)
        if self._quiet > MAX_HEAD or self._head > MAX_HEAD:
            self.send_400_response("The request head is too large.")

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._quiet = 0
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._quiet = 0
        self._head += len(name) + len(value)
        super().on_header(name, value)

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
        answering = bool(self.cycle) and self.cycle.response_started
        if not answering or self.cycle.response_complete:
            path = self.url.partition(b"?")[0].decode("latin-1")
            body = error_body(InvalidRequest(msg), api_of(path), None)
            headers = [*error_headers(InvalidRequest(msg), body), (b"connection", b"close")]
            lines = [b"%b: %b\r\n" % each for each in headers]
            self.transport.write(b"".join([STATUS_LINE[400], *lines, b"\r\n", body]))
        self.transport.close()


class Server(uvicorn.Server):
    """A server that drains on SIGTERM and SIGINT; a second SIGINT stops at once."""

    def __init__(self, config: uvicorn.Config, drain: Drain, drain_s: float) -> None:
        super().__init__(config)
        self._drain = drain
        self._drain_s = drain_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler. Not recorded for uvicorn to raise again: an orderly stop exits with 0."""
        if self._drain.active and sig == signal.SIGINT:
            self.force_exit = self.should_exit = True
        self._drain.begin()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(self._stop_after_drain())
            await super().serve(sockets)
            draining.cancel()

    async def _stop_after_drain(self) -> None:
        await self._drain.begun()
        log.info("draining: no new requests, running ones have %g s", self._drain_s)
        cut = await self._drain.finish(self._drain_s)
        log.info("drained, %d cut", cut)
        self.should_exit = True


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How uvicorn runs us."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        backlog=4096,
    )
