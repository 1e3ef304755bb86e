"""The composition root: the only place that builds objects and knows them all."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TextIO

from fastapi import FastAPI

from gateway.admission import Admission, Slots
from gateway.auth import Keyring
from gateway.bound import UNKNOWN, AutoBound
from gateway.cors import Cors
from gateway.drain import Drain
from gateway.health import Looked, Prober, control_client, unwatched
from gateway.limits.limiter import Limiter
from gateway.limits.local import LocalLimiter
from gateway.log import RequestLog
from gateway.metrics import Metrics
from gateway.relay import Relay, Times
from gateway.routes import control
from gateway.routes.control import Status, control_app
from gateway.routes.cors import CorsEdge
from gateway.routes.edge import MODEL_PREFIX, Edge, Route, identified
from gateway.routes.generation import Generation
from gateway.routes.intake import Budget
from gateway.routes.metrics import measured
from gateway.routes.models import Models
from gateway.routes.table import ENGINE_ROUTES
from gateway.settings import Settings
from gateway.upstream.engine import Engine, Fleet
from gateway.upstream.exchange import Limits

if TYPE_CHECKING:
    from gateway.shared.link import Link

log = logging.getLogger("gateway")

# Bodies held at one time: sixteen of the largest kind, or thousands of ordinary ones.
BODIES_IN_MEMORY = 16
# A worker that starts waits so long for Valkey before it serves with its share.
VALKEY_START_S = 1.0


@dataclass(frozen=True)
class Gateway:
    """The application and what the server has to reach in it."""

    app: Edge
    drain: Drain


@dataclass(frozen=True)
class State:
    """What requests are counted in: this process alone, or all workers through Valkey."""

    admission: Slots
    limiter: Limiter
    looked: Looked
    link: Link | None = None


def create_gateway(settings: Settings, log_stream: TextIO, worker: str | None = None) -> Gateway:
    """Build everything. `worker`: the name of this one of several. Raises KeyFileError when the
    key file cannot be used.
    """
    loop_clock = asyncio.get_running_loop().time
    keyring = Keyring(settings.api_keys_file)
    engines = [Engine(index, url, loop_clock) for index, url in enumerate(settings.upstreams)]
    fleet = Fleet(tuple(engines))
    state = build_state(settings, worker)
    drain = Drain()
    relay = Relay(state.admission, fleet, drain, times(settings))
    api = control_app(Status(fleet, state.admission, drain, state.link))
    table = [*control_routes(api), *data_routes(settings, keyring, fleet, relay, drain)]
    routes, metrics = measured(table, fleet, state.admission)
    api.router.lifespan_context = lifespan(settings, keyring, fleet, drain, state, metrics)
    request_log = RequestLog(log_stream, settings.log_level)
    cors = Cors(frozenset(settings.cors_origins))
    edge = partial(CorsEdge, cors) if cors.origins else Edge
    return Gateway(edge(routes, api, request_log, request_ids(), [metrics.observe]), drain)


def build_state(settings: Settings, worker: str | None) -> State:
    slots, room = settings.max_concurrency or UNKNOWN, settings.queue_size
    if worker is None:
        admission = Admission(slots, room)
        return State(admission, LocalLimiter(), looked_at(settings, admission))
    # Only here: one worker has no use for Valkey's client and does not load it.
    from gateway.limits.shared import SharedLimiter
    from gateway.shared.admission import SharedAdmission
    from gateway.shared.link import Link

    link = Link(settings.valkey_url, worker)
    shared = SharedAdmission(link, slots, room, settings.workers)
    limiter = SharedLimiter(link, LocalLimiter(), settings.workers)
    link.add(shared)
    link.add(limiter)
    return State(shared, limiter, looked_at(settings, shared), link)


def looked_at(settings: Settings, admission: Slots) -> Looked:
    """What a look at an engine changes: the bound, unless it is set."""
    if settings.max_concurrency is not None:
        return unwatched
    return AutoBound(admission, settings.workers).look


def request_ids() -> Callable[[], str]:
    """24 hex digits, 16 of this process and a count: unique without a system call each time."""
    process = secrets.token_hex(8)
    count = itertools.count(1)
    return lambda: f"{process}{next(count) & 0xFFFFFFFF:08x}"


def times(settings: Settings) -> Times:
    silence = Limits(settings.first_byte_timeout_s, settings.idle_timeout_s)
    return Times(settings.queue_timeout_s, settings.hold_s, silence)


def control_routes(api: FastAPI) -> list[Route]:
    endpoint = identified(api)
    return [Route(path, {"GET": endpoint}, probe=True) for path in control.PATHS]


def data_routes(
    settings: Settings, keyring: Keyring, fleet: Fleet, relay: Relay, drain: Drain
) -> list[Route]:
    limit = settings.max_body_bytes
    budget = Budget(BODIES_IN_MEMORY * limit)
    posts = [
        Route(route.path, {"POST": Generation(route, keyring, fleet, relay, budget, limit)})
        for route in ENGINE_ROUTES
    ]
    models = Models(False, keyring, fleet, drain, settings.hold_s)
    one = Models(True, keyring, fleet, drain, settings.hold_s)
    return [*posts, Route("/v1/models", {"GET": models}), Route(MODEL_PREFIX, {"GET": one})]


def lifespan(
    settings: Settings,
    keyring: Keyring,
    fleet: Fleet,
    drain: Drain,
    state: State,
    metrics: Metrics,
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Prober, key file follower and shared metrics run from start to stop."""

    @asynccontextmanager
    async def run(_: FastAPI) -> AsyncIterator[None]:
        async with control_client() as client, asyncio.TaskGroup() as group:
            prober = Prober(fleet, settings.status_urls, client, state.looked)
            works = [prober.run(), keyring.follow(), metrics.run()]
            works += [state.link.run()] if state.link else []
            tasks = [group.create_task(or_stop(work, drain)) for work in works]
            if state.link is not None:
                await state.link.settled(VALKEY_START_S)
            yield
            for task in tasks:
                task.cancel()
        for engine in fleet.engines:
            engine.close_idle(older_than_s=0)

    return run


async def or_stop(work: Coroutine[None, None, None], drain: Drain) -> None:
    """Run until cancelled. Should the work fail, the whole process stops in order: serving on with
    old keys, or with engines nobody looks at, would be worse, and a restart may help.
    """
    try:
        await work
    except Exception:
        log.exception("a background task failed, stopping")
        drain.fail()
