"""A fault that nobody thought of: the client hears of it, without a word of its text."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.log import Record
from gateway.routes.edge import Edge, Route

SECRET = "sk-a-key-in-an-exception"


async def before(scope: Scope, receive: Receive, send: Send) -> None:
    raise KeyError(SECRET)


async def amid(scope: Scope, receive: Receive, send: Send) -> None:
    scope["record"].status = 200
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise KeyError(SECRET)


class Bench:
    """An edge with one route on which each request fails."""

    def __init__(self, path: str = "/v1/x") -> None:
        self.path = path
        self.sent: list[Message] = []
        self.told: list[Record] = []

    def ask(self, endpoint: Route) -> None:
        edge = Edge([endpoint], before, [lambda record, _: self.told.append(record)], lambda: "id1")
        raw = self.path.encode()
        scope = {"type": "http", "method": "GET", "path": self.path, "raw_path": raw, "headers": []}
        asyncio.run(edge(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("path", ["/v1/x", "/v1/messages"])
def test_a_fault_before_an_answer_is_a_500(path: str) -> None:
    """In the form of the path, with the request's id."""
    bench = Bench(path)
    bench.ask(Route(path, {"GET": before}))
    start, body = bench.sent
    assert (start["status"], (b"x-request-id", b"id1") in start["headers"]) == (500, True)
    assert json.loads(body["body"])["error"]["message"] == "Something went wrong in the gateway."
    assert SECRET.encode() not in body["body"]
    (record,) = bench.told
    found = (record.outcome, record.status, record.reason)
    assert found == ("internal_error", 500, "internal_error")


def test_a_fault_amid_an_answer_cuts_it() -> None:
    """Nothing more is written: the server closes the connection on what is raised."""
    bench = Bench()
    with pytest.raises(KeyError):
        bench.ask(Route(bench.path, {"GET": amid}))
    assert len(bench.sent) == 1
    (record,) = bench.told
    assert (record.outcome, record.status) == ("internal_error", 200)
