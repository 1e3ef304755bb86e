"""The edge when GATEWAY_CORS_ORIGINS is set: the same, with CORS headers and preflights.

    Origin allowed?  ──yes──▶ the headers go with the record, so with every answer, errors too
         │no                    └─ a preflight, path in the table ─▶ 204: no key, never forwarded
         └─ a preflight ─▶ 403, which a developer finds in the browser's network list; other
            requests are answered as ever, and the browser keeps the answer from the page

Without the setting this module is not on the way of any request.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.cors import Cors, preflight_headers
from gateway.errors import Headers, MethodNotAllowed, OriginNotAllowed
from gateway.log import Record
from gateway.routes.edge import Edge


@dataclass(frozen=True)
class Preflight:
    """ASGI endpoint: what a page may do on one path."""

    methods: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["record"]
        record.status = 204
        record.probe = True  # a log line and a latency for each would only hide the real ones
        asked = header(scope, b"access-control-request-headers") or ""
        headers = [*preflight_headers(self.methods, asked), *record.headers]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class CorsEdge(Edge):
    """An edge that pages of `cors.origins` can use from a browser. `edge`: as an Edge takes it."""

    def __init__(self, cors: Cors, *edge: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*edge, **named)
        self._cors = cors

    def _find(self, scope: Scope, record: Record) -> ASGIApp:
        origin = header(scope, b"origin")
        record.headers += self._cors.headers(origin)
        try:
            return super()._find(scope, record)
        except MethodNotAllowed as error:
            if origin is None or not is_preflight(scope):
                raise
            if not self._cors.allows(origin):
                raise OriginNotAllowed from None
            return Preflight(error.allowed)


def is_preflight(scope: Scope) -> bool:
    """Fetch standard: OPTIONS that says which method is to follow."""
    asks = header(scope, b"access-control-request-method")
    return scope["method"] == "OPTIONS" and asks is not None


def header(scope: Scope, wanted: bytes) -> str | None:
    """The first header of that name, None when there is none."""
    headers: Headers = scope["headers"]
    return next((value.decode("latin-1") for name, value in headers if name == wanted), None)
