"""One request from its complete body to its ending: slot, engine, bytes, end.

    client ──▶ body read ──▶ slot  +  ready engine ──▶ sent ──▶ head ──▶ pieces ──▶ end
                              │queue    │hold            │        │        │
    every ending:
      queue full or too long  ┘ 503     │                │        │        │
      no such model ────────────────────┤ 404            │        │        │
      no engine in time, or drain ──────┘ 503            │        │        │
      connection gone before any byte ───────────────────┘ sent once more, or 502   (rule 2)
      silence before the first body byte ──────────── 504 (event stream begun: error event)
      engine's own error status ───────────────────────────┘ that status; body kept if it
                                                             has the API's form, else wrapped
      event stream: [DONE] or finish_reason seen, then end ─────────── end           ok
      event stream: the engine's error event, then end ─────────────── end           upstream_error
      event stream: end, cut, silence before that ─────────── error event, end       truncated
      plain body: whole ────────────────────────────────────────────── end           ok
      plain body: empty ────────────────────────────────────────────── 502           upstream_error
      plain body: cut or silence after bytes ───────────── connection cut            truncated
      client leaves, at any point above ───────── engine's connection aborted        client_left
      client stops reading for the idle time ──── engine's connection aborted        client_stalled
      drain time over ────────── 503, or error event, or cut, by what was sent       drained

Which test holds each ending: docs/architecture.md. An error event is the last thing in its stream.
Nothing here invents a finish_reason or a [DONE]. The slot is free as soon as the engine is done;
the client may still be reading. All pieces travel in the read callback, from
`upstream.connection` through `answer` to `client`; the request's task only waits for endings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gateway.admission import Slots
from gateway.answer import Answer, Clock
from gateway.client import ClientConnection, nothing
from gateway.drain import Drain, Interrupt
from gateway.errors import Draining, UpstreamFailed, UpstreamTimeout
from gateway.gate import Wait
from gateway.log import Record
from gateway.upstream.connection import Connection
from gateway.upstream.ejector import Ejector
from gateway.upstream.engine import Engine, Unreachable
from gateway.upstream.exchange import ClientStalled, Died, Job, Limits, Silent
from gateway.upstream.fleet import Fleet

# Looks at an engine that closed a connection: is it gone? One that is killed closes its sockets in
# turn, the one that listens perhaps after the one that ended, so the first look may be too early.
LOOKS_S = (0.0, 0.02, 0.1)
IDLE_LOOKS_S = (0.02,)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds; see settings.py for each."""

    queue_s: float
    hold_s: float
    silence: Limits
    heartbeat_s: float = 0


class Relay:
    """Carries jobs to engines. One for the process; `__call__` once a request. `busy`: told of an
    engine that refuses a request because it has too many; `ejector`: of how answers end.
    """

    def __init__(
        self,
        admission: Slots,
        fleet: Fleet,
        drain: Drain,
        times: Times,
        busy: Callable[[Engine], None],
        ejector: Ejector,
    ) -> None:
        self._admission = admission
        self._fleet = fleet
        self._drain = drain
        self._times = times
        self._busy = busy
        self._ejector = ejector
        self._clock: Clock = time.monotonic

    async def __call__(self, job: Job, record: Record, client: ClientConnection) -> None:
        """Answer one request. Raises GatewayError while nothing has been sent."""
        if self._drain.active:
            raise Draining
        answer = Answer(client, job, record, self._clock, self._times.heartbeat_s)
        interrupt = Interrupt()
        self._drain.enter(interrupt.drained)
        try:
            client.watch(interrupt.client_left)
            await self._to_the_end(job, record, answer, client)
        except asyncio.CancelledError:
            if not interrupt.taken():
                raise
            interrupt.armed = False
            await self._interrupted(interrupt, answer, client, record)
        finally:
            interrupt.armed = False
            self._drain.leave(interrupt.drained)
            client.release(interrupt.client_left)
            answer.count()

    async def _to_the_end(
        self, job: Job, record: Record, answer: Answer, client: ClientConnection
    ) -> None:
        wait = Wait(self._times.queue_s, self._times.hold_s)
        try:
            done = False
            while not done:
                async with self._admission.slot(record.key or "", wait):
                    record.queued_s = self._clock() - record.started
                    done = await self._from_engine(job, record, answer, client)
                if not done:
                    wait.again = True
                    await self._fleet.wait_for(job.wish, wait)
            answer.whole()
        except (UpstreamFailed, UpstreamTimeout) as error:
            answer.broken(error, "truncated" if answer.started else "upstream_error")
        except ClientStalled:
            self._stalled(client, record)
            return
        await self._flush(client, record)

    async def _from_engine(
        self, job: Job, record: Record, answer: Answer, client: ClientConnection
    ) -> bool:
        """Find a ready engine and feed its answer, trying again only where that is safe. False:
        there is none any more; the slot goes back, since it may be one too many for the next, or
        engines of other models can use it.
        """
        done = False
        while not done:
            engine = self._fleet.choose(job.wish)
            if engine is None:
                return False
            record.upstream = engine.index
            engine.in_flight += 1
            try:
                done = await self._attempt(engine, job, record, answer, client)
                if answer.busy:
                    self._busy(engine)
            finally:
                engine.in_flight -= 1
        return True

    async def _attempt(
        self, engine: Engine, job: Job, record: Record, answer: Answer, client: ClientConnection
    ) -> bool:
        """One try at one engine. False: nothing was sent, or it may be sent once more (rule 2,
        docs/architecture.md): the connection died before any response byte, and it was a reused
        one or the engine now refuses connections. Never after a time-out.
        """
        try:
            connection = await engine.connection(fresh=record.resent)
        except Unreachable:
            self._lost(engine)
            return False
        reused = connection.exchanges > 0
        try:
            await self._exchange(connection, engine, job, answer, client)
        except Silent:
            self._ejector.answered(engine, whole=False)
            raise UpstreamTimeout("The engine did not answer in time.") from None
        except Died as death:
            idle = reused and not death.replied  # it may only have been unused for too long
            refuses = await self._refuses(engine, IDLE_LOOKS_S if idle else LOOKS_S)
            if not (idle or refuses):
                self._ejector.answered(engine, whole=False)
            if death.replied or record.resent or not (idle or refuses):
                raise UpstreamFailed("The engine closed the connection.") from None
            record.resent = True
            return False
        if self._ejector.several:
            self._ejector.answered(engine, whole=not answer.failed)
        return True

    async def _refuses(self, engine: Engine, looks_s: Sequence[float]) -> bool:
        """True when it is gone, and then nobody else is sent there."""
        for pause_s in looks_s:
            await asyncio.sleep(pause_s)
            if await engine.refuses():
                self._lost(engine)
                return True
        return False

    async def _exchange(
        self,
        connection: Connection,
        engine: Engine,
        job: Job,
        answer: Answer,
        client: ClientConnection,
    ) -> None:
        client.on_paused, client.on_free = connection.pause, connection.resume
        answer.enough, answer.sent = connection.stop, True
        try:
            await connection.exchange(job.request(engine.authority), answer, self._times.silence)
        finally:
            client.on_paused = client.on_free = nothing
            engine.keep(connection)

    async def _flush(self, client: ClientConnection, record: Record) -> None:
        """Let a slow client take what is left within the idle time."""
        if not client.flow.write_paused:
            return
        try:
            async with asyncio.timeout(self._times.silence.idle_s):
                await client.drained()
        except TimeoutError:
            self._stalled(client, record)

    def _stalled(self, client: ClientConnection, record: Record) -> None:
        record.outcome = "client_stalled"
        client.abort()

    async def _interrupted(
        self, interrupt: Interrupt, answer: Answer, client: ClientConnection, record: Record
    ) -> None:
        record.outcome = interrupt.why or "internal_error"
        if interrupt.why == "drained":
            answer.broken(Draining(), "drained")
            await self._flush(client, record)

    def _lost(self, engine: Engine) -> None:
        """It refuses connections: not ready until a probe says otherwise."""
        self._ejector.looked(engine, ready=False)
        self._fleet.update(engine, replace(engine.view, ready=False))
