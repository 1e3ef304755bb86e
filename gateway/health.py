"""The prober: asks each engine and its launcher how they are, and tells the fleet.

Ready means: `/health` answers 200, `/v1/models` names a model, and the launcher, when it answers,
agrees (an engine that drains still says 200 on /health while it aborts new requests).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gateway.upstream.ask import Reply, Unanswered, ask
from gateway.upstream.ejector import Ejector
from gateway.upstream.engine import Engine, View
from gateway.upstream.fleet import Fleet
from gateway.watchdog import Watchdog

# Held requests wait for the next probe: a short step while not ready, a calm one afterwards.
READY_INTERVAL_S = 1.0
WAITING_INTERVAL_S = 0.25
# A busy API server can take seconds for /health. Refusals count at once, time-outs only in a row.
PROBE_TIMEOUT_S = 3.0
PATIENCE = 3

Looked = Callable[[Engine, View], None]


def unwatched(_engine: Engine, _view: View) -> None:
    """Nobody else wants to know."""


class Prober:
    """Probes all engines until cancelled. `looked`: told of every probe before the fleet is."""

    def __init__(
        self,
        fleet: Fleet,
        status_urls: Sequence[str],
        watchdog: Watchdog,
        ejector: Ejector,
        looked: Looked = unwatched,
    ) -> None:
        self._fleet = fleet
        self._ejector = ejector
        self._looked = looked
        self._status_urls = dict(zip(fleet.engines, status_urls, strict=False))
        self._watchdog = watchdog
        self._slow = dict.fromkeys(fleet.engines, 0)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for engine in self._fleet.engines:
                group.create_task(self._watch(engine))

    async def _watch(self, engine: Engine) -> None:
        while True:
            self._tell(engine, await self.probe(engine))
            engine.close_idle()
            await asyncio.sleep(READY_INTERVAL_S if engine.view.ready else WAITING_INTERVAL_S)

    def _tell(self, engine: Engine, view: View) -> None:
        self._ejector.looked(engine, view.ready)
        self._looked(engine, view)  # before those who wait for ready: they find the bound set
        self._fleet.update(engine, view)

    async def probe(self, engine: Engine) -> View:
        """One look at an engine: its health, what it serves, what its launcher says. A launcher
        that says no is heard at once: while the engine is slow, it is asked each second.
        """
        async with asyncio.TaskGroup() as group:
            health = group.create_task(self._healthy(engine))
            status = await self._status(engine)
            while agreed(status) and not await _done(health, READY_INTERVAL_S):
                status = await self._status(engine)
            if engine.view.ready and not agreed(status):
                self._tell(engine, replace(engine.view, ready=False, status=status))
        healthy = health.result()
        models = await self._models(engine) if healthy else ()
        return judge(healthy, models or engine.view.models, status)

    async def _healthy(self, engine: Engine) -> bool:
        try:
            reply = await self._ask(f"{engine.url}/health")
        except TimeoutError:
            self._slow[engine] += 1
            return engine.view.ready and self._slow[engine] < PATIENCE
        except Unanswered:
            return False
        self._slow[engine] = 0
        return reply.status == 200

    async def _models(self, engine: Engine) -> tuple[dict[str, Any], ...]:
        body = await self._json(f"{engine.url}/v1/models")
        data = body.get("data") if body else None
        if not isinstance(data, list):
            return ()
        return tuple(each for each in data if isinstance(each, dict) and "id" in each)

    async def _status(self, engine: Engine) -> dict[str, Any] | None:
        url = self._status_urls.get(engine)
        return await self._json(url) if url else None

    async def _json(self, url: str) -> dict[str, Any] | None:
        """The JSON object at `url`, None when there is none to be had."""
        try:
            body = json.loads((await self._ask(url)).body)
        except (TimeoutError, Unanswered, ValueError, RecursionError):
            return None
        return body if isinstance(body, dict) else None

    async def _ask(self, url: str) -> Reply:
        return await ask(url, PROBE_TIMEOUT_S, self._watchdog)


async def _done(task: asyncio.Task[bool], within_s: float) -> bool:
    await asyncio.wait({task}, timeout=within_s)
    return task.done()


def agreed(status: dict[str, Any] | None) -> bool:
    """Pure: a launcher that does not answer has no objection."""
    return status is None or status.get("ready") is True


def judge(healthy: bool, models: tuple[dict[str, Any], ...], status: dict[str, Any] | None) -> View:
    """Pure: is this engine ready, given its own word and its launcher's."""
    return View(
        ready=healthy and bool(models) and agreed(status),
        reachable=healthy or status is not None,
        models=models,
        status=status,
    )
