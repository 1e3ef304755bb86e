"""The prober: asks each engine and its launcher how they are, and tells the fleet.

Ready means: `/health` answers 200, `/v1/models` names a model, and the launcher, when it answers,
agrees (an engine that drains still says 200 on /health while it aborts new requests).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from gateway.upstream.ask import Reply, Unanswered, ask
from gateway.upstream.engine import Engine, Fleet, View
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
        looked: Looked = unwatched,
    ) -> None:
        self._fleet = fleet
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
            view = await self.probe(engine)
            self._looked(engine, view)  # first, so that those who wait for ready find the bound set
            self._fleet.update(engine, view)
            engine.close_idle()
            await asyncio.sleep(READY_INTERVAL_S if engine.view.ready else WAITING_INTERVAL_S)

    async def probe(self, engine: Engine) -> View:
        """One look at an engine: its health, what it serves, what its launcher says."""
        status, healthy = await asyncio.gather(self._status(engine), self._healthy(engine))
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


def judge(healthy: bool, models: tuple[dict[str, Any], ...], status: dict[str, Any] | None) -> View:
    """Pure: is this engine ready, given its own word and its launcher's."""
    agreed = status is None or status.get("ready") is True
    return View(
        ready=healthy and bool(models) and agreed,
        reachable=healthy or status is not None,
        models=models,
        status=status,
    )
