"""What runs from start to stop beside the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from gateway.auth import Keyring
from gateway.drain import Drain
from gateway.health import Prober
from gateway.ledger.ledger import Ledger
from gateway.log import RequestLog
from gateway.metrics import Metrics
from gateway.settings import Settings
from gateway.state import State
from gateway.upstream.ejector import Ejector
from gateway.upstream.fleet import Fleet
from gateway.watchdog import Watchdog

log = logging.getLogger("gateway")

# A worker that starts waits so long for Valkey before it serves with its share.
VALKEY_START_S = 1.0


@dataclass(frozen=True)
class Background:
    """`lifespan` is entered when the server starts and left when it has stopped serving."""

    settings: Settings
    keyring: Keyring
    fleet: Fleet
    drain: Drain
    state: State
    ejector: Ejector
    watchdog: Watchdog
    request_log: RequestLog
    metrics: Metrics
    ledger: Ledger | None

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            urls, looked = self.settings.status_urls, self.state.looked
            prober = Prober(self.fleet, urls, self.watchdog, self.ejector, looked)
            works = [prober.run(), self.keyring.follow(), self.watchdog.run(), self.metrics.run()]
            if self.ledger is not None:
                works.append(self.ledger.run())
            if self.state.link is not None:
                works.append(self.state.link.run())
            tasks = [group.create_task(or_stop(work, self.drain)) for work in works]
            if self.state.link is not None:
                await self.state.link.settled(VALKEY_START_S)
            yield
            for task in tasks:
                task.cancel()
        await self._end()

    async def _end(self) -> None:
        """Leave nothing behind: connections, counts, lines."""
        for engine in self.fleet.engines:
            engine.close_idle(older_than_s=0)
        if self.ledger is not None:
            await self.ledger.close()
        self.request_log.flush()


async def or_stop(work: Coroutine[None, None, None], drain: Drain) -> None:
    """Run until cancelled. Should the work fail, the whole process stops in order: serving on with
    old keys, or with engines nobody looks at, would be worse, and a restart may help.
    """
    try:
        await work
    except Exception:
        log.exception("a background task failed, stopping")
        drain.fail()
