"""GET /v1/models and /v1/models/{id}: answered here, from what the engines serve."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from gateway.auth import Keyring
from gateway.client import IN_SCOPE, ClientConnection
from gateway.drain import Drain, Interrupt
from gateway.errors import Draining
from gateway.keys import Key
from gateway.log import Record
from gateway.routes.edge import MODEL_PREFIX, reply
from gateway.upstream.fleet import Fleet, no_such_model


@dataclass(frozen=True)
class Models:
    """ASGI endpoint for the list (`one` False) or a single model. Any slashes in an id."""

    one: bool
    keyring: Keyring
    fleet: Fleet
    drain: Drain
    hold_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["record"]
        key = self.keyring.caller(scope["headers"])
        record.key = key.name
        if self.drain.active:
            raise Draining
        if not self.fleet.ready:
            await self._held(scope[IN_SCOPE], record)
            if record.outcome == "client_left":
                return
        models = self.fleet.models
        body: object = {"object": "list", "data": allowed(models, key)}
        if self.one:
            body = find(models, scope["path"].removeprefix(MODEL_PREFIX), key)
        await reply(200, json.dumps(body, ensure_ascii=False).encode(), record, send)

    async def _held(self, client: ClientConnection, record: Record) -> None:
        """Wait for a ready engine, as long as the client stays. Raises NotReady, or Draining when
        the gateway stops meanwhile.
        """
        interrupt = Interrupt()
        self.drain.enter(interrupt.drained)
        try:
            client.watch(interrupt.client_left)
            await self.fleet.wait_ready(self.hold_s)
        except asyncio.CancelledError:
            if not interrupt.taken():
                raise
            record.outcome = interrupt.why or "internal_error"
            if interrupt.why == "drained":
                raise Draining from None
        finally:
            interrupt.armed = False
            self.drain.leave(interrupt.drained)
            client.release(interrupt.client_left)


def allowed(models: list[dict[str, Any]], key: Key) -> list[dict[str, Any]]:
    """The models that this key may use. Pure."""
    return [each for each in models if key.models is None or each["id"] in key.models]


def find(models: list[dict[str, Any]], wanted: str, key: Key) -> dict[str, Any]:
    """The model of that id. Raises ModelNotFound, naming what is served."""
    for each in allowed(models, key):
        if each["id"] == wanted:
            return each
    raise no_such_model(wanted, models, key.models)
