"""POST routes that an engine answers: key, body, then the relay."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from gateway.auth import Keyring
from gateway.log import Record
from gateway.relay import Relay
from gateway.routes.formdata import check_form_model
from gateway.routes.intake import Budget, check_model, header_lines, read_body
from gateway.routes.table import EngineRoute
from gateway.upstream.engine import Fleet
from gateway.upstream.exchange import Job


@dataclass(frozen=True)
class Generation:
    """ASGI endpoint of one route of the table."""

    route: EngineRoute
    keyring: Keyring
    fleet: Fleet
    relay: Relay
    budget: Budget
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["record"]
        headers = scope["headers"]
        route = self.route
        key = self.keyring.caller(headers, route.api)
        record.key = key.name
        with self.budget.lease() as lease:
            body = await read_body(receive, headers, self.max_body_bytes, lease)
            record.bytes_in = lease.taken
            if body is None:
                record.outcome = "client_left"
                return
            default = self.fleet.default_model
            if route.body == "multipart":
                check_form_model(key, headers, body, default)
            else:
                check_model(key, body, default)
            target = route.target(scope["query_string"])
            lines = header_lines(headers, record)
            job = Job(target, lines, body, route.api, route.ending)
            await self.relay(job, record, receive, send)
