"""An engine's response on its way to the client: when ours starts, what it carries, how it ends.

on_head ─┬─ 2xx event stream ─▶ start at once ─▶ pieces as they come, tracked
         ├─ other 2xx ────────▶ start with the first piece, so that a body that never comes
         │                      can still be an error with a status
         └─ any other status ─▶ collect, then as it is (the API's form) or wrapped
then one of whole() and broken()
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import GatewayError, Headers, UpstreamFailed
from gateway.forms import engine_error, error_event
from gateway.log import Outcome, Record
from gateway.outbox import Outbox, nothing
from gateway.sse import Tracker
from gateway.upstream.exchange import Head, Job

Clock = Callable[[], float]

# An error object is a few hundred bytes; a validation error may quote its input.
MAX_ERROR_BODY = 1 << 18

# Between two connections only (RFC 9110 §7.6.1), or ours to say.
NOT_RELAYED = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade date server x-request-id x-accel-buffering".split()
)
STREAM_HEADERS: Headers = [
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Answer:
    """The response on its way to the client; the sink of the engine's connection."""

    def __init__(self, outbox: Outbox, record: Record, clock: Clock, job: Job) -> None:
        self._outbox = outbox
        self._record = record
        self._clock = clock
        self._job = job
        self._head = Head(0, [])
        self._refusal: bytearray | None = None
        self.enough = nothing  # ends the engine's response early
        self.tracker: Tracker | None = None  # for an event stream
        self.started = False

    def on_head(self, head: Head) -> None:
        self._head = head
        if not 200 <= head.status < 300:
            self._refusal = bytearray()
        elif head.value(b"content-type").lower().startswith(b"text/event-stream"):
            self._record.stream = True
            self.tracker = Tracker(self._job.ending)
            self._start(head, [*_relayed(head, stream=True), *STREAM_HEADERS])

    def on_piece(self, data: bytes) -> None:
        record = self._record
        if self._refusal is not None:
            self._refusal += data
            if len(self._refusal) > MAX_ERROR_BODY:
                self.enough()
            return
        if not record.bytes_out:
            record.first_byte_at = self._clock()
        record.bytes_out += len(data)
        if self.tracker is not None:
            self.tracker.feed(data)
        elif not self.started:
            self._start(self._head, _relayed(self._head, stream=False))
        self._outbox.body(data)

    def whole(self) -> None:
        """The engine's response is complete: end ours. Raises UpstreamFailed for an empty one."""
        head = self._head
        if self._refusal is not None:
            self._refuse(head, bytes(self._refusal))
        elif self.tracker is not None:
            self._end_stream(self.tracker)
        elif not self.started and head.status != 204:
            raise UpstreamFailed("The engine sent an empty answer.")
        else:
            if not self.started:
                self._start(head, _relayed(head, stream=False))
            self._outbox.finish()

    def broken(self, error: GatewayError, outcome: Outcome) -> None:
        """No more bytes will come. Before the start: raises `error`. After: event, or a cut."""
        if outcome != "drained" and self._said_all():
            self.whole()
            return
        self._record.outcome = outcome
        self._record.reason = error.code
        if not self.started:
            raise error
        if self.tracker is not None:
            tracker, ending = self.tracker, self._job.ending
            self._outbox.finish(error_event(error, ending, tracker.mid_event, tracker.frames))

    def _said_all(self) -> bool:
        """True when only framing is missing: after the last event, or of an error's body."""
        if self.tracker is not None:
            return self.tracker.verdict() != "truncated"
        return self._refusal is not None

    def _end_stream(self, tracker: Tracker) -> None:
        self._record.frames = tracker.frames
        verdict = tracker.verdict()
        if verdict == "truncated":
            self.broken(UpstreamFailed("The engine ended the stream early."), "truncated")
            return
        if verdict == "error":
            self._record.outcome, self._record.reason = "upstream_error", "error_event"
        self._outbox.finish()

    def _refuse(self, head: Head, body: bytes) -> None:
        body, wrapped = engine_error(head.status, body, self._job.api, self._record.request_id)
        self._record.outcome, self._record.reason = "upstream_error", "status"
        self._record.bytes_out = len(body)
        self._start(head, _refusal_headers(head, len(body), wrapped))
        self._outbox.finish(body)

    def _start(self, head: Head, headers: Headers) -> None:
        # A redirect or another oddity is not something a client of ours can follow.
        status = head.status if head.status < 300 or head.status >= 400 else 502
        self.started = True
        self._record.status = status
        headers = [*headers, *self._record.headers]
        self._outbox.push({"type": "http.response.start", "status": status, "headers": headers})


def _relayed(head: Head, stream: bool) -> Headers:
    """The engine's headers without those of the hop; a stream's length and caching are ours."""
    dropped = NOT_RELAYED | _named_by_connection(head)
    if stream:
        dropped |= {b"content-length", b"cache-control"}
    return [(name, value) for name, value in head.headers if name not in dropped]


def _refusal_headers(head: Head, length: int, wrapped: bool) -> Headers:
    """Of an error body that is the engine's, or `wrapped` by us: then only its retry time stays."""
    own = (b"content-length", str(length).encode())
    relayed = [each for each in _relayed(head, stream=False) if each[0] != b"content-length"]
    if not wrapped:
        return [*relayed, own]
    retry = [each for each in relayed if each[0] == b"retry-after"]
    return [(b"content-type", b"application/json"), *retry, own]


def _named_by_connection(head: Head) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower() for token in head.value(b"connection").split(b",") if token
    )
