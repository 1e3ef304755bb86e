"""A whole answer that a slow client has yet to take: the end of the drain time adds nothing."""

from __future__ import annotations

from gateway.answer import Answer
from gateway.errors import Draining, Headers
from gateway.log import Record
from gateway.upstream.exchange import Head, Job

EVENT = b'data: {"choices":[{"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Written:
    """What a client's connection was told to write."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def start(self, status: int, headers: Headers, chunked: bool, data: bytes = b"") -> None:
        self.parts.append(b"head")

    def write(self, data: bytes) -> None:
        self.parts.append(data)

    def finish(self) -> None:
        self.parts.append(b"end")


def test_nothing_follows_the_end() -> None:
    client, record = Written(), Record("r1", "POST")
    job = Job(b"/v1/chat/completions", b"", b"{}")
    answer = Answer(client, job, record, lambda: 0.0, 0)  # type: ignore[arg-type]
    answer.on_head(Head(200, [(b"content-type", b"text/event-stream")]))
    answer.on_piece(EVENT)
    answer.whole()
    answer.broken(Draining(), "drained")
    assert client.parts == [b"head", EVENT, b"end"]
    assert record.outcome == "drained"
