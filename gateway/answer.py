"""An engine's response on its way to the client: when ours starts, what it carries, how it ends.

on_head ─┬─ 2xx event stream ─▶ start at once ─▶ pieces as they come, followed
         ├─ other 2xx ────────▶ start with the first piece, so that a body that never comes
         │                      can still be an error with a status
         └─ any other status ─▶ collect, then as it is (in the API's form) or wrapped
then one of whole() and broken()
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.client import ClientConnection, nothing
from gateway.errors import GatewayError, Headers, UpstreamFailed
from gateway.forms import engine_error, error_event
from gateway.lane import Lane
from gateway.log import Outcome, Record
from gateway.streams import Stream
from gateway.upstream.exchange import Head, Job
from gateway.usage import Usage, UsageFinder

Clock = Callable[[], float]

# What a server says that is broken; 501 is about the request, 503 about its load.
FAILURES = frozenset((500, 502, 504))
# An error object is a few hundred bytes; a validation error may quote its input.
MAX_ERROR_BODY = 1 << 18
# vLLM says "busy" without a time; a slot frees up every few hundred milliseconds under load.
BUSY_RETRY = (b"retry-after", b"2")
# A comment alone, without a blank line: some clients take a blank line for the end of an event.
HEARTBEAT = b": keep-alive\n"

# Between two connections only (RFC 9110 §7.6.1), or ours to say.
NOT_RELAYED = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade date server x-request-id x-accel-buffering".split()
)
NOT_RELAYED_OF_STREAMS = NOT_RELAYED | {b"content-length", b"cache-control"}
STREAM_HEADERS: Headers = [
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Answer:
    """The response on its way to the client; the sink of the engine's connection.

    `heartbeat_s`: seconds of silence in an event stream between comments of ours, 0: none.
    """

    def __init__(
        self, client: ClientConnection, job: Job, record: Record, clock: Clock, heartbeat_s: float
    ) -> None:
        self._client = client
        self._job = job
        self._record = record
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._beats = 0  # in this silence
        self._awaited = True  # the first event, other than comments
        self._head = Head(0, [])
        self._refusal: bytearray | None = None
        self._finder = UsageFinder()
        self.enough = nothing  # ends the engine's response early
        self.stream: Stream | None = None
        self.sent = False  # to an engine
        self.started = False
        self.ended = False  # all is written; the client may have yet to take it

    @property
    def busy(self) -> bool:
        """The engine says that it can take no more now; vLLM does so before a stream begins."""
        return self._head.status == 503

    @property
    def failed(self) -> bool:
        """It came to its end, and yet it is one of a broken engine, as far as one can tell."""
        broken = self.stream is not None and self.stream.verdict() == "truncated"
        return broken or self._head.status in FAILURES

    def on_head(self, head: Head) -> None:
        self._head = head
        if not 200 <= head.status < 300:
            self._refusal = bytearray()
        elif head.is_event_stream:
            self._record.stream = True
            self.stream = Stream(self._job.ending, self._job.usage_asked)
            self._start([*_relayed(head, stream=True), *STREAM_HEADERS], chunked=True)

    def on_piece(self, data: bytes) -> None:
        stream = self.stream
        if stream is None:
            self._plain(data)
            return
        if self._awaited and (b"data:" in data or stream.frames.open):
            self._awaited = False
            self._record.first_byte_at = self._clock()
        data = stream.feed(data)
        if data:
            self._record.bytes_out += len(data)
            self._client.write(data)

    def lane(self) -> Lane | None:
        """The fast path, while the stream is as vLLM writes it."""
        if self.stream is None or not self.stream.steady:
            return None
        if self.stream.lane is None:
            self.stream.lane = self._client.make_lane(self._job.usage_asked)
        return self.stream.lane

    def on_silence(self, seconds: float) -> None:
        """Nothing came for so long: a comment, if wanted, and only between two events."""
        if not self._heartbeat_s or self.stream is None:
            return
        if seconds < self._heartbeat_s:
            self._beats = 0
        elif seconds >= self._heartbeat_s * (self._beats + 1) and self.stream.between_events:
            self._beats += 1
            self._client.write(HEARTBEAT)

    def whole(self) -> None:
        """The engine's response is complete: end ours. Raises UpstreamFailed for an empty one."""
        head = self._head
        if self._refusal is not None:
            self._refuse(head, bytes(self._refusal))
        elif self.stream is not None:
            self._end_stream(self.stream)
        elif not self.started and head.status != 204:
            raise UpstreamFailed("The engine sent an empty answer.")
        else:
            if not self.started:
                self._start(_relayed(head, stream=False), chunked=False)
            self._finish()

    def broken(self, error: GatewayError, outcome: Outcome) -> None:
        """No more bytes will come. Before the start: raises `error`. After: event, or a cut."""
        if outcome != "drained" and self._said_all():
            self.whole()
            return
        self._record.outcome = outcome
        self._record.reason = error.code
        if self.ended:
            return
        if not self.started:
            raise error
        if self.stream is not None:
            self._write_rest(self.stream)
            frames = self.stream.frames
            self._client.write(error_event(error, self._job.ending, frames.open, frames.count))
            self._finish()

    def count(self) -> None:
        """Note the tokens: the engine's own count, or an estimate of what it did uncounted."""
        record = self._record
        if self.stream is not None:
            self.stream.settle()
            record.frames = self.stream.frames.count
            record.bytes_out += self.stream.carried
        failed = self._refusal is not None or (
            not self.started and record.outcome == "upstream_error"
        )
        if self.sent and self._job.counted and not failed:
            usage = self.stream.usage() if self.stream else self._finder.usage()
            record.tokens_estimated = usage is None
            usage = usage or Usage(
                self._job.prompt_tokens,
                self.stream.tokens_seen() if self.stream else 0,
            )
            record.prompt_tokens = usage.prompt or 0
            record.completion_tokens = usage.completion or 0

    def _plain(self, data: bytes) -> None:
        record = self._record
        if self._refusal is not None:
            self._refusal += data
            if len(self._refusal) > MAX_ERROR_BODY:
                self.enough()
            return
        if record.first_byte_at is None:
            record.first_byte_at = self._clock()
        self._finder.feed(data)
        record.bytes_out += len(data)
        if self.started:
            self._client.write(data)
        else:
            headers = _relayed(self._head, stream=False)
            self._start(headers, not self._head.value(b"content-length"), data)

    def _said_all(self) -> bool:
        """True when only framing is missing: after the last event, or of an error's body."""
        if self.stream is not None:
            return self.stream.verdict() != "truncated"
        return self._refusal is not None

    def _end_stream(self, stream: Stream) -> None:
        verdict = stream.verdict()
        if verdict == "truncated":
            self.broken(UpstreamFailed("The engine ended the stream early."), "truncated")
            return
        if verdict == "error":
            self._record.outcome, self._record.reason = "upstream_error", "error_event"
        self._write_rest(stream)
        self._finish()

    def _write_rest(self, stream: Stream) -> None:
        rest = stream.rest()
        if rest:
            self._record.bytes_out += len(rest)
            self._client.write(rest)

    def _refuse(self, head: Head, body: bytes) -> None:
        body, wrapped = engine_error(head.status, body, self._job.api, self._record.request_id)
        self._record.outcome, self._record.reason = "upstream_error", "status"
        self._record.bytes_out = len(body)
        self._start(_refusal_headers(head, len(body), wrapped), chunked=False, data=body)
        self._finish()

    def _finish(self) -> None:
        self.ended = True
        self._client.finish()

    def _start(self, headers: Headers, chunked: bool, data: bytes = b"") -> None:
        status = self._head.status
        if not 200 <= status < 300 and not 400 <= status < 600:
            status = 502  # a redirect or another oddity is nothing a client of ours can follow
        self.started = True
        self._record.status = status
        self._client.start(status, [*headers, *self._record.headers], chunked, data)


def _relayed(head: Head, stream: bool) -> Headers:
    """The engine's headers without those of the hop; a stream's length and caching are ours."""
    dropped = NOT_RELAYED_OF_STREAMS if stream else NOT_RELAYED
    if b"connection" in head.fields:
        dropped = dropped | _named_by_connection(head)
    return [(name, value) for name, value in head.headers if name not in dropped]


def _refusal_headers(head: Head, length: int, wrapped: bool) -> Headers:
    """Of an error body that is the engine's, or `wrapped` by us: then only its retry time stays."""
    own: Headers = [(b"content-length", str(length).encode())]
    if wrapped:
        own.append((b"content-type", b"application/json"))
    relayed = [each for each in _relayed(head, stream=False) if each[0] != b"content-length"]
    retry = [each for each in relayed if each[0] == b"retry-after"]
    if head.status in {429, 503} and not retry:
        own.append(BUSY_RETRY)
    return [*(retry if wrapped else relayed), *own]


def _named_by_connection(head: Head) -> frozenset[bytes]:
    named = b",".join(value for name, value in head.headers if name == b"connection")
    return frozenset(token.strip().lower() for token in named.split(b",") if token)
