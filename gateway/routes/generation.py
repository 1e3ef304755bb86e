"""POST routes that an engine answers: key, body, then the relay."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from gateway.auth import Keyring
from gateway.log import Record
from gateway.relay import Relay
from gateway.routes.intake import Budget, check_model, header_lines, read_body
from gateway.upstream.engine import Fleet
from gateway.upstream.exchange import Job

PATHS = ("/v1/chat/completions", "/v1/completions")


@dataclass(frozen=True)
class Generation:
    """ASGI endpoint of one path. The engine's path is this constant, never the client's bytes."""

    path: str
    keyring: Keyring
    fleet: Fleet
    relay: Relay
    budget: Budget
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["record"]
        headers = scope["headers"]
        key = self.keyring.caller(headers)
        record.key = key.name
        with self.budget.lease() as lease:
            body = await read_body(receive, headers, self.max_body_bytes, lease)
            record.bytes_in = lease.taken
            if body is None:
                record.outcome = "client_left"
                return
            check_model(key, body, self.fleet.default_model)
            job = Job(self.path.encode("ascii"), header_lines(headers, record), body)
            await self.relay(job, record, receive, send)
