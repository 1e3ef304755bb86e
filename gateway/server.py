"""uvicorn, with our shut-down order.

uvicorn closes its listeners first and waits for streams afterwards, without a word to them;
here a SIGTERM first turns us not ready, drains, and only then lets uvicorn stop. The exit code
of an orderly stop is 0.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from gateway.client import ClientConnection
from gateway.drain import Drain

log = logging.getLogger("gateway")

# Longer than nginx keeps an idle connection to us (60 s), or it would meet a closing socket.
KEEP_ALIVE_S = 75
# A request leaves a few hundred objects, hardly any in a cycle: look for those more seldom.
GC_THRESHOLD = 20_000
# After the drain only idle connections are left.
STOP_S = 5


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


def collect_seldom() -> None:
    """Call once all is built: that lives as long as the process, and full collections need not
    walk it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How uvicorn runs us."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=ClientConnection,
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
