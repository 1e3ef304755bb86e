"""The prober: asks each engine and its launcher how they are, and tells the fleet.

Ready means: `/health` answers 200, `/v1/models` names a model, and the launcher, when it answers,
agrees (an engine that drains still says 200 on /health while it aborts new requests).
httpx is for these control calls only; the data path has its own connections.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from gateway.upstream.engine import Engine, Fleet, View

# Held requests wait for the next probe: a short step while not ready, a calm one afterwards.
READY_INTERVAL_S = 1.0
WAITING_INTERVAL_S = 0.25
# A busy API server can take seconds for /health. Refusals count at once, time-outs only in a row.
PROBE_TIMEOUT_S = 3.0
PATIENCE = 3
# /v1/models of an engine with many adapters is some hundred kilobytes.
MAX_BODY = 4 << 20


Looked = Callable[[Engine, View], None]


def unwatched(_engine: Engine, _view: View) -> None:
    """Nobody else wants to know."""


class Prober:
    """Probes all engines until cancelled. `client`: closed by whoever made it. `looked`: told of
    every probe before the fleet is.
    """

    def __init__(
        self,
        fleet: Fleet,
        status_urls: Sequence[str],
        client: httpx.AsyncClient,
        looked: Looked = unwatched,
    ) -> None:
        self._fleet = fleet
        self._looked = looked
        self._status_urls = dict(zip(fleet.engines, status_urls, strict=False))
        self._client = client
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
            response = await self._client.get(f"{engine.url}/health")
        except httpx.TimeoutException:
            self._slow[engine] += 1
            return engine.view.ready and self._slow[engine] < PATIENCE
        except httpx.HTTPError:
            return False
        self._slow[engine] = 0
        return response.status_code == 200

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
            async with self._client.stream("GET", url) as response:
                raw = b""
                async for part in response.aiter_bytes():
                    raw += part
                    if len(raw) > MAX_BODY:
                        return None
            body = json.loads(raw)
        except (httpx.HTTPError, ValueError, RecursionError):
            return None
        return body if isinstance(body, dict) else None


def control_client() -> httpx.AsyncClient:
    """For control calls: no proxy from the environment, no redirects, short time-outs; each on a
    connection of its own, since a stale kept one would look like an engine that is down.
    """
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=PROBE_TIMEOUT_S, trust_env=False, limits=limits)


def judge(healthy: bool, models: tuple[dict[str, Any], ...], status: dict[str, Any] | None) -> View:
    """Pure: is this engine ready, given its own word and its launcher's."""
    agreed = status is None or status.get("ready") is True
    return View(
        ready=healthy and bool(models) and agreed,
        reachable=healthy or status is not None,
        models=models,
        status=status,
    )
