"""The gateway's own routes, a FastAPI application: probes, status, and status as events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from sse_starlette.sse import EventSourceResponse

from gateway import __version__
from gateway.admission import Slots
from gateway.drain import Drain
from gateway.errors import GatewayError, Overloaded
from gateway.forms import error_body
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet, phase_of

if TYPE_CHECKING:
    from gateway.shared.link import Link

PATHS = ("/livez", "/readyz", "/health", "/status", "/status/events")
# A watcher costs a task and one JSON text a second; there are some consoles, not thousands.
MAX_WATCHERS = 64
EVENT_INTERVAL_S = 1.0
PING_S = 15

# What /status takes from a launcher (its status page), and null when none answers.
FROM_LAUNCHER = (
    "model",
    "served_model_names",
    "engine_version",
    "debug",
    "start",
    "api_servers",
    "graphs",
    "kv_cache",
    "running",
    "waiting",
    "prompt_tokens_total",
    "generation_tokens_total",
)


@dataclass
class Status:
    """Composes what /readyz and /status say."""

    fleet: Fleet
    admission: Slots
    drain: Drain
    link: Link | None = None  # to the other workers, where there are any
    watchers: int = 0

    @property
    def ready(self) -> bool:
        return self.fleet.ready and not self.drain.active

    def readiness(self) -> dict[str, Any]:
        if self.ready:
            return {"ready": True, "phase": "ready"}
        phase = "draining" if self.drain.active else self.fleet.phase
        return {"ready": False, "phase": phase, "message": self._message()}

    def full(self) -> dict[str, Any]:
        readiness = self.readiness()
        told = _first_told(self.fleet.engines)
        served = [str(model["id"]) for model in self.fleet.models] if self.ready else []
        return {
            **readiness,
            "message": self._message(),
            **{name: told.get(name) for name in FROM_LAUNCHER},
            "served_model_names": served or told.get("served_model_names") or [],
            "gateway": {
                "version": __version__,
                "in_flight": self.admission.in_use,
                "queued": self.admission.waiting,
                "shared_state": self._shared(),
                "slots": self.admission.slots,
            },
            "engines": [_engine(engine) for engine in self.fleet.engines],
        }

    def _shared(self) -> str | None:
        """Whether this worker counts with the others: ok, down; None with one worker."""
        if self.link is None:
            return None
        return "ok" if self.link.up else "down"

    def _message(self) -> str:
        if self.drain.active:
            return "The gateway is shutting down."
        told = _first_told(self.fleet.engines).get("message")
        if isinstance(told, str) and told:
            return told
        return "Serving." if self.ready else "No engine answers yet."


def control_app(status: Status) -> FastAPI:
    """The application; documentation pages off, since they would be one more open route."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/livez")
    @app.get("/health")
    async def live() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def ready() -> Response:
        return JSONResponse(status.readiness(), 200 if status.ready else 503)

    @app.get("/status")
    async def full() -> Response:
        return JSONResponse(status.full())

    @app.get("/status/events")
    async def events() -> Response:
        if status.watchers >= MAX_WATCHERS:
            return refusal(Overloaded("Too many status watchers.", retry_after_s=10))
        return EventSourceResponse(
            changes(status),
            sep="\n",
            ping=PING_S,
            headers={"Cache-Control": "no-cache, no-transform"},
        )

    return app


def refusal(error: GatewayError) -> Response:
    headers = {name.decode(): value.decode() for name, value in error.headers}
    body = error_body(error, "openai", None)
    return Response(body, error.status, headers, media_type="application/json")


async def changes(status: Status) -> AsyncIterator[dict[str, str]]:
    """The status as an event whenever it differs from the last one; ends when a drain begins."""
    status.watchers += 1
    last = ""
    try:
        while True:
            text = json.dumps(status.full())
            if text != last:
                last = text
                yield {"event": "status", "data": text}
            if status.drain.active:
                return
            await _pause(status.drain)
    finally:
        status.watchers -= 1


async def _pause(drain: Drain) -> None:
    try:
        async with asyncio.timeout(EVENT_INTERVAL_S):
            await drain.begun()
    except TimeoutError:
        return


def _first_told(engines: tuple[Engine, ...]) -> dict[str, Any]:
    return next((engine.view.status for engine in engines if engine.view.status), {})


def _engine(engine: Engine) -> dict[str, Any]:
    """What its launcher says, and above it what the gateway knows itself."""
    view = engine.view
    return {
        **(view.status or {}),
        "upstream": engine.index,
        "name": engine.authority.decode(),
        "reachable": view.reachable,
        "ready": view.ready,
        "phase": "ready" if view.ready else phase_of([engine]),
        "models": [str(model["id"]) for model in view.models],
        "in_flight": engine.in_flight,
        "ejected": engine.ejected,
    }
