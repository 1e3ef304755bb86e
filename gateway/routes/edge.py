"""The outermost ASGI layer: one exact table of routes, one error handler, one log line.

    request ─▶ path and method in the table? ──no──▶ 404 / 405, never forwarded
                      │yes
                      ├─ data path (plain ASGI endpoints) ─▶ keys, relay
                      └─ control (FastAPI application)    ─▶ probes, status

The data path does not pass through FastAPI: its routing and exit stacks cost more per request
than the whole relay, and each layer that wraps `send` would be paid again for every chunk.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import (
    Draining,
    GatewayError,
    MethodNotAllowed,
    NotFound,
    Unexpected,
    error_headers,
)
from gateway.forms import Api, api_of, error_body
from gateway.log import Record, request_id

log = logging.getLogger("gateway")

# Ways to write a path that another hop may read differently. Model ids have slashes of their
# own, encoded by some clients; their route is answered here and forwarded nowhere.
_AMBIGUOUS = re.compile(rb"%2f|%5c|%00|\\|;|//|/\.\.?(?:/|$)|%2e", re.IGNORECASE)
MODEL_PREFIX = "/v1/models/"

Finished = Callable[[Record, float], None]


@dataclass(frozen=True)
class Route:
    """One path. `methods`: an endpoint for each; `probe`: not worth a log line when it is fine."""

    path: str
    methods: Mapping[str, ASGIApp]
    probe: bool = False


class Edge:
    """The application that the server runs. `rest`: gets lifespan events. `finished`: told of each
    request after its answer, with the monotonic time; must not raise.
    """

    def __init__(
        self,
        routes: list[Route],
        rest: ASGIApp,
        finished: Sequence[Finished],
        new_id: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routes = {route.path: route for route in routes}
        # As almost every request writes it: found here, a path needs no second look.
        self._plain = {route.path.encode(): route for route in routes if route.path != MODEL_PREFIX}
        self._rest = rest
        self._finished = finished
        self._new_id = new_id
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        record = Record(request_id(scope["headers"], self._new_id), scope["method"])
        record.started = self._clock()
        record.headers.append((b"x-request-id", record.request_id.encode()))
        scope["record"] = record
        try:
            await self._find(scope, record)(scope, receive, send)
        except GatewayError as error:
            await refuse(error, record, send, api_of(scope["path"]))
        except asyncio.CancelledError:  # the server stops and waits no longer, for an upload say
            record.outcome = "drained"
            if record.status is not None:
                raise
            await refuse(Draining(), record, send, api_of(scope["path"]))
        except Exception:
            log.exception("unexpected error in request %s", record.request_id)
            record.outcome = "internal_error"
            if record.status is not None:  # an answer has begun: the server cuts it
                raise
            ours = Unexpected("Something went wrong in the gateway.")
            await refuse(ours, record, send, api_of(scope["path"]))
        finally:
            now = self._clock()
            for tell in self._finished:
                tell(record, now)

    def _find(self, scope: Scope, record: Record) -> ASGIApp:
        route = self._plain.get(scope["raw_path"]) or self._look(scope["path"], scope["raw_path"])
        record.route = route.path
        record.probe = route.probe
        endpoint = route.methods.get(scope["method"])
        if endpoint is None:
            raise MethodNotAllowed(list(route.methods))
        return endpoint

    def _look(self, path: str, raw_path: bytes) -> Route:
        if path.startswith(MODEL_PREFIX) and len(path) > len(MODEL_PREFIX):
            return self._routes[MODEL_PREFIX]
        route = self._routes.get(path)
        if route is None or path == MODEL_PREFIX or _AMBIGUOUS.search(raw_path):
            raise NotFound("There is no such path.")
        return route


async def refuse(error: GatewayError, record: Record, send: Send, api: Api) -> None:
    """Answer with an error in the form of that API, before anything else was sent."""
    body = error_body(error, api, record.request_id)
    headers = [*error_headers(error, body), *record.headers]
    record.status = error.status
    record.reason = error.code
    record.bytes_out = len(body)
    if record.outcome == "ok":
        record.outcome = "rejected"
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def reply(
    status: int, body: bytes, record: Record, send: Send, kind: bytes = b"application/json"
) -> None:
    """Answer with a body of our own. `kind`: its media type."""
    record.status = status
    record.bytes_out = len(body)
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        *record.headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def identified(app: ASGIApp) -> ASGIApp:
    """`app` with the record's headers in its answers and its status in the record."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["record"]

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message.get("headers", []), *record.headers]
            await send(message)

        await app(scope, receive, tagged)

    return endpoint
