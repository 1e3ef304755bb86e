"""One request from its complete body to its ending: slot, engine, bytes, end.

    client ──▶ body read ──▶ slot ──▶ ready engine ──▶ sent ──▶ head ──▶ pieces ──▶ end
                              │queue    │hold            │        │        │
    every ending:
      queue full or too long  ┘ 503     │                │        │        │
      no engine in time, or drain ──────┘ 503            │        │        │
      connection gone before any byte ───────────────────┘ sent once more, or 502   (rule 2)
      silence before the first body byte ──────────── 504 (event stream begun: error event)
      engine's own error status ───────────────────────────┘ that status; body kept if
                                                             OpenAI-shaped, else wrapped
      event stream: [DONE] or finish_reason seen, then end ─────────── end           ok
      event stream: end, cut, silence before that ─────────── error event, end       truncated
      plain body: whole ────────────────────────────────────────────── end           ok
      plain body: cut or silence after bytes ───────────── connection cut            truncated
      client leaves, at any point above ───────── engine's connection aborted        client_left
      client stops reading for the idle time ──── engine's connection aborted        client_stalled
      drain time over ────────── 503, or error event, or cut, by what was sent       drained

Nothing here invents a finish_reason or a [DONE]. The slot is free as soon as the engine is done;
the client may still be reading. All pieces travel in the read callback (`upstream.connection`,
`outbox`); the task of the request only waits for endings.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.types import Receive, Send

from gateway.admission import Admission
from gateway.drain import Drain
from gateway.errors import (
    Draining,
    GatewayError,
    Headers,
    NotReady,
    UpstreamFailed,
    UpstreamTimeout,
    error_json,
)
from gateway.log import Outcome, Record
from gateway.outbox import ClientWatch, Outbox
from gateway.sse import Tracker, error_event
from gateway.upstream.connection import ClientStalled, Connection, Died, Head, Limits, Silent
from gateway.upstream.engine import Engine, Fleet, Unreachable

Clock = Callable[[], float]

# An error object is a few hundred bytes; a validation error may quote its input.
MAX_ERROR_BODY = 1 << 18
# An engine start takes a minute or more, but a held request sees it at once.
NOT_READY_RETRY_S = 10

# Between two connections only (RFC 9110 §7.6.1), or ours to say.
NOT_RELAYED = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade date server x-request-id x-accel-buffering".split()
)
STREAM_HEADERS: Headers = [
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Job:
    """What goes to an engine: the constant path, our header lines, the client's bytes."""

    path: bytes
    header_lines: bytes
    body: bytes

    def request(self, authority: bytes) -> tuple[bytes, bytes]:
        """Head and body; Host is the engine's own."""
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n%b\r\n" % (
            self.path,
            authority,
            len(self.body),
            self.header_lines,
        )
        return head, self.body


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds; see settings.py for each."""

    queue_s: float
    hold_s: float
    silence: Limits


class Interrupt:
    """Cancels the request's task, once, and remembers why."""

    def __init__(self, outbox: Outbox) -> None:
        self._task = asyncio.current_task()
        self._outbox = outbox
        self.why: Outcome | None = None
        self.armed = True

    def client_left(self) -> None:
        self._cancel("client_left")

    def drained(self) -> None:
        self._cancel("drained")

    def _cancel(self, why: Outcome) -> None:
        # The server also reports "disconnect" once a response is complete: not an interruption.
        if self.armed and self.why is None and not self._outbox.closed and self._task is not None:
            self.why = why
            self._task.cancel()

    def taken(self) -> bool:
        """True when this CancelledError is ours; it is then no longer pending."""
        if self.why is None or self._task is None:
            return False
        self._task.uncancel()
        return True


class Answer:
    """The response on its way to the client; the sink of the engine's connection."""

    def __init__(self, outbox: Outbox, record: Record, clock: Clock) -> None:
        self._outbox = outbox
        self._record = record
        self._clock = clock
        self._head = Head(0, [])
        self._refusal: bytearray | None = None
        self.tracker: Tracker | None = None  # for an event stream
        self.started = False

    def on_head(self, head: Head) -> None:
        self._head = head
        if not 200 <= head.status < 300:
            self._refusal = bytearray()
        elif head.value(b"content-type").lower().startswith(b"text/event-stream"):
            self._record.stream = True
            self.tracker = Tracker()
            self._start(head, [*_relayed(head, stream=True), *STREAM_HEADERS])

    def on_piece(self, data: bytes) -> None:
        record = self._record
        if self._refusal is not None:
            if len(self._refusal) <= MAX_ERROR_BODY:
                self._refusal += data
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
        complete = self.tracker is not None and self.tracker.verdict() != "truncated"
        if complete and outcome == "truncated":  # only the framing after the last event is missing
            self.whole()
            return
        self._record.outcome = outcome
        self._record.reason = error.code
        if not self.started:
            raise error
        if self.tracker is not None:
            self._outbox.finish(error_event(error, self.tracker.mid_event))

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
        body, wrapped = openai_error(head, body)
        headers = [] if wrapped else _relayed(head, stream=False)
        retry = head.value(b"retry-after")
        if wrapped:
            headers = [(b"content-type", b"application/json")]
            headers += [(b"retry-after", retry)] if retry else []
        headers = [each for each in headers if each[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        self._record.outcome, self._record.reason = "upstream_error", "status"
        self._record.bytes_out = len(body)
        self._start(head, headers)
        self._outbox.finish(body)

    def _start(self, head: Head, headers: Headers) -> None:
        # A redirect or another oddity is not something a client of ours can follow.
        status = head.status if head.status < 300 or head.status >= 400 else 502
        self.started = True
        self._record.status = status
        headers.append((b"x-request-id", self._record.request_id.encode()))
        self._outbox.push({"type": "http.response.start", "status": status, "headers": headers})


class Relay:
    """Carries jobs to engines. One for the process; `__call__` once a request."""

    def __init__(
        self,
        admission: Admission,
        fleet: Fleet,
        drain: Drain,
        times: Times,
        clock: Clock = time.monotonic,
    ) -> None:
        self._admission = admission
        self._fleet = fleet
        self._drain = drain
        self._times = times
        self._clock = clock

    async def __call__(self, job: Job, record: Record, receive: Receive, send: Send) -> None:
        """Answer one request. Raises GatewayError while nothing has been sent."""
        if self._drain.active:
            raise Draining
        outbox = Outbox(send)
        answer = Answer(outbox, record, self._clock)
        interrupt = Interrupt(outbox)
        watch = ClientWatch(receive, interrupt.client_left)
        try:
            with self._drain.running(interrupt.drained):
                watch.start()
                await self._to_the_end(job, record, answer, outbox)
        except asyncio.CancelledError:
            if not interrupt.taken():
                raise
            interrupt.armed = False
            await self._interrupted(interrupt, answer, outbox, record)
        finally:
            interrupt.armed = False
            watch.stop()
            outbox.stop()

    async def _to_the_end(self, job: Job, record: Record, answer: Answer, outbox: Outbox) -> None:
        # While no engine is ready slots do not move, so the queue may take the hold time too.
        patience = self._times.queue_s + (0 if self._fleet.ready else self._times.hold_s)
        try:
            async with self._admission.slot(patience):
                record.queued_s = self._clock() - record.started
                await self._from_engine(job, record, answer, outbox)
            answer.whole()
        except (UpstreamFailed, UpstreamTimeout) as error:
            answer.broken(error, "truncated" if answer.started else "upstream_error")
        except ClientStalled:
            record.outcome = "client_stalled"
            return
        if answer.tracker is not None:
            record.frames = answer.tracker.frames
        await self._flush(outbox, record)

    async def _from_engine(self, job: Job, record: Record, answer: Answer, outbox: Outbox) -> None:
        """Find a ready engine and feed its answer, trying again only where that is safe."""
        deadline = self._clock() + self._times.hold_s
        done = False
        while not done:
            engine = await self._fleet.wait_ready(deadline - self._clock())
            if engine is None:
                raise self._not_ready()
            record.upstream = engine.index
            with engine.load():
                done = await self._attempt(engine, job, record, answer, outbox)

    async def _attempt(
        self, engine: Engine, job: Job, record: Record, answer: Answer, outbox: Outbox
    ) -> bool:
        """One try at one engine. False: nothing was sent, or it may be sent once more (rule 2 of
        the design): the connection died before any response byte, and it was a reused one or the
        engine now refuses connections. Never after a time-out.
        """
        try:
            connection = await engine.connection(fresh=record.resent)
        except Unreachable:
            self._lost(engine)
            return False
        reused = connection.exchanges > 0
        try:
            await self._exchange(connection, engine, job, answer, outbox)
        except Silent:
            raise UpstreamTimeout("The engine did not answer in time.") from None
        except Died as death:
            if death.replied or record.resent or not (reused or await engine.refuses()):
                raise UpstreamFailed("The engine closed the connection.") from None
            record.resent = True
            return False
        return True

    async def _exchange(
        self, connection: Connection, engine: Engine, job: Job, answer: Answer, outbox: Outbox
    ) -> None:
        outbox.on_blocked, outbox.on_free = connection.pause, connection.resume
        try:
            await connection.exchange(job.request(engine.authority), answer, self._times.silence)
        finally:
            outbox.on_blocked = outbox.on_free = _nothing
            engine.keep(connection)

    async def _flush(self, outbox: Outbox, record: Record) -> None:
        """Let a slow client take what is left, as long as it takes anything at all."""
        try:
            async with asyncio.timeout(self._times.silence.idle_s):
                await outbox.drained()
        except TimeoutError:
            record.outcome = "client_stalled"

    async def _interrupted(
        self, interrupt: Interrupt, answer: Answer, outbox: Outbox, record: Record
    ) -> None:
        record.outcome = interrupt.why or "internal_error"
        if answer.tracker is not None:
            record.frames = answer.tracker.frames
        if interrupt.why == "drained":
            answer.broken(Draining(), "drained")
            await self._flush(outbox, record)

    def _lost(self, engine: Engine) -> None:
        """It refuses connections: not ready until a probe says otherwise."""
        self._fleet.update(engine, replace(engine.view, ready=False))

    def _not_ready(self) -> NotReady:
        message = f"No engine is ready (phase: {self._fleet.phase}). Please retry."
        return NotReady(message, NOT_READY_RETRY_S)


def openai_error(head: Head, body: bytes) -> tuple[bytes, bool]:
    """An engine's error body in OpenAI form: (body, False) as it was, or (new body, True)."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    found = parsed if isinstance(parsed, dict) else {}
    error = found.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return body, False
    texts = (error, found.get("detail"), found.get("message"))
    message = next((text for text in texts if isinstance(text, str)), None)
    kind = "invalid_request_error" if 400 <= head.status < 500 else "server_error"
    message = message or f"The engine answered with HTTP status {head.status}."
    return error_json(message, kind, "upstream_error"), True


def _relayed(head: Head, stream: bool) -> Headers:
    """The engine's headers without those of the hop; a stream's length and caching are ours."""
    dropped = NOT_RELAYED | _named_by_connection(head)
    if stream:
        dropped |= {b"content-length", b"cache-control"}
    return [(name, value) for name, value in head.headers if name not in dropped]


def _named_by_connection(head: Head) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower() for token in head.value(b"connection").split(b",") if token
    )


def _nothing() -> None:
    return
