"""POST routes that an engine answers: key, body, limits, then the relay."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from gateway.auth import Keyring
from gateway.client import IN_SCOPE, ClientConnection
from gateway.keys import Key
from gateway.limits.limiter import Limiter
from gateway.log import Record
from gateway.relay import Relay
from gateway.routes.conversation import conversation_of
from gateway.routes.formdata import form_model
from gateway.routes.intake import Budget, Upload, header_lines
from gateway.routes.peek import ASSUMED_ANSWER, asking_for_usage, check_model, peek, wanted
from gateway.routes.table import EngineRoute
from gateway.upstream.exchange import Job, Wish
from gateway.upstream.fleet import Fleet
from gateway.usage import BYTES_PER_TOKEN


@dataclass(frozen=True)
class Doors:
    """What every route passes a request through. `max_body_bytes`: of one request."""

    keyring: Keyring
    limiter: Limiter
    budget: Budget
    max_body_bytes: int


@dataclass(frozen=True)
class Generation:
    """ASGI endpoint of one route of the table."""

    route: EngineRoute
    doors: Doors
    fleet: Fleet
    relay: Relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["record"]
        client: ClientConnection = scope[IN_SCOPE]
        headers = scope["headers"]
        key = self.doors.keyring.caller(headers, self.route.api)
        record.key = key.name
        upload = Upload(self.doors.budget, self.doors.max_body_bytes)
        try:
            body = await upload.read(client, receive, headers)
            record.bytes_in = upload.taken
            if body is None:
                record.outcome = "client_left"
                return
            job, tokens = self._job(key, body, scope, record)
            await self._within_limits(key, job, tokens, record, client)
        finally:
            upload.release()

    async def _within_limits(
        self, key: Key, job: Job, tokens: int, record: Record, client: ClientConnection
    ) -> None:
        """Reserve `tokens`, and settle what was used when the answer is over."""
        allowed = await self.doors.limiter.enter(key, tokens if job.counted else 0)
        record.headers += allowed.headers
        try:
            await self.relay(job, record, client)
        finally:
            allowed.leave(record.prompt_tokens + record.completion_tokens)

    def _job(self, key: Key, body: bytes, scope: Scope, record: Record) -> tuple[Job, int]:
        """What goes to the engine, and an estimate of its tokens. Raises InvalidRequest,
        ModelNotAllowed or ModelNotFound.
        """
        route, headers = self.route, scope["headers"]
        asked, conversation = None, b""
        if route.body == "multipart":
            model = form_model(key, headers, body)
            prompt, tokens = 0, ASSUMED_ANSWER  # audio: its bytes are no text
        else:
            found = peek(body)
            check_model(key, found.model)
            model = wanted(found.model)
            prompt, tokens = len(body) // BYTES_PER_TOKEN, found.tokens(len(body))
            if route.generates and self.fleet.several(model):
                conversation = conversation_of(body)
            if route.ending == "chat" and found.streams and not found.usage_wanted:
                asked = asking_for_usage(body, found.stream_options)
        wish = Wish(model, conversation, key.models)
        record.model = self.fleet.label(model)
        self.fleet.serving(wish)  # what nobody serves needs no slot to be refused
        job = Job(
            route.target(scope["query_string"]),
            header_lines(headers, record),
            asked or body,
            route.api,
            route.ending,
            usage_asked=asked is not None,
            counted=route.generates,
            prompt_tokens=prompt,
            wish=wish,
        )
        return job, tokens
