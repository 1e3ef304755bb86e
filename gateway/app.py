"""The composition root: the only place that builds objects and knows them all."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from fastapi import FastAPI

from gateway.auth import Keyring
from gateway.background import Background
from gateway.cors import Cors
from gateway.drain import Drain
from gateway.ledger.ledger import Ledger
from gateway.ledger.opening import open_ledger
from gateway.log import Record, RequestLog
from gateway.relay import Relay, Times
from gateway.routes import control
from gateway.routes.control import Status, control_app
from gateway.routes.cors import CorsEdge
from gateway.routes.edge import MODEL_PREFIX, Edge, Finished, Route, identified
from gateway.routes.generation import Doors, Generation
from gateway.routes.intake import Budget
from gateway.routes.metrics import measured
from gateway.routes.models import Models
from gateway.routes.table import ENGINE_ROUTES
from gateway.settings import Settings
from gateway.state import build_state
from gateway.upstream.ejector import Ejector
from gateway.upstream.engine import Engine
from gateway.upstream.exchange import Limits
from gateway.upstream.fleet import Fleet
from gateway.watchdog import Watchdog

# Bodies held at one time: sixteen of the largest kind, or thousands of ordinary ones.
BODIES_IN_MEMORY = 16


@dataclass(frozen=True)
class Gateway:
    """The application and what the server has to reach in it."""

    app: Edge
    drain: Drain


def create_gateway(settings: Settings, log_stream: BinaryIO, worker: str | None = None) -> Gateway:
    """Build everything. `worker`: the name of this one of several. Raises KeyFileError when the
    key file cannot be used, SettingsError when the ledger's database cannot.
    """
    clock = asyncio.get_running_loop().time
    keyring = Keyring(settings.api_keys_file)
    watchdog = Watchdog()
    engines = tuple(Engine(i, url, clock, watchdog) for i, url in enumerate(settings.upstreams))
    fleet = Fleet(engines, settings.queue_size // settings.workers)
    state, drain = build_state(settings, fleet, worker), Drain()
    ledger = open_ledger(settings.usage_db)
    request_log = RequestLog(log_stream, settings.log_level)
    api = control_app(Status(fleet, state.admission, drain, state.link))
    ejector = Ejector(fleet.engines, clock)
    relay = Relay(state.admission, fleet, drain, times(settings), state.busy, ejector)
    budget = Budget(BODIES_IN_MEMORY * settings.max_body_bytes)
    doors = Doors(keyring, state.limiter, budget, settings.max_body_bytes)
    table = [
        *control_routes(api),
        *engine_routes(doors, fleet, relay),
        *model_routes(settings, keyring, fleet, drain),
    ]
    routes, metrics = measured(table, fleet, state.admission, ejector, ledger)
    api.router.lifespan_context = Background(
        settings, keyring, fleet, drain, state, ejector, watchdog, request_log, metrics, ledger
    ).lifespan
    finished: list[Finished] = [request_log.write, metrics.observe]
    if ledger is not None:
        finished.append(accounting(ledger))
    cors = Cors(frozenset(settings.cors_origins))
    edge = partial(CorsEdge, cors) if cors.origins else Edge
    return Gateway(edge(routes, api, finished, request_ids()), drain)


def accounting(ledger: Ledger) -> Finished:
    """What the ledger takes of a request: those of known keys that were meant for an engine."""
    counted = frozenset(route.path for route in ENGINE_ROUTES)

    def add(record: Record, _: float) -> None:
        if record.key is not None and record.route in counted:
            ledger.add(
                record.key,
                record.model,
                record.route,
                record.outcome,
                record.prompt_tokens,
                record.completion_tokens,
                record.tokens_estimated,
            )

    return add


def request_ids() -> Callable[[], str]:
    """24 hex digits, 16 of this process and a count: unique without a system call each time."""
    process = secrets.token_hex(8)
    count = itertools.count(1)
    return lambda: f"{process}{next(count) & 0xFFFFFFFF:08x}"


def times(settings: Settings) -> Times:
    silence = Limits(settings.first_byte_timeout_s, settings.idle_timeout_s)
    return Times(settings.queue_timeout_s, settings.hold_s, silence, settings.heartbeat_s)


def control_routes(api: FastAPI) -> list[Route]:
    endpoint = identified(api)
    return [Route(path, {"GET": endpoint}, probe=True) for path in control.PATHS]


def engine_routes(doors: Doors, fleet: Fleet, relay: Relay) -> list[Route]:
    return [
        Route(each.path, {"POST": Generation(each, doors, fleet, relay)}) for each in ENGINE_ROUTES
    ]


def model_routes(settings: Settings, keyring: Keyring, fleet: Fleet, drain: Drain) -> list[Route]:
    every = Models(False, keyring, fleet, drain, settings.hold_s)
    one = Models(True, keyring, fleet, drain, settings.hold_s)
    return [Route("/v1/models", {"GET": every}), Route(MODEL_PREFIX, {"GET": one})]
