"""A worker's one connection to Valkey: commands in order, many in one round trip, sessions.

    down ──connected, scripts loaded──▶ up ──no answer within ANSWER_S, error, end──▶ down
      ▲ every request is served from this worker's share meanwhile                     │
      └───────────────────── again after a growing pause ◀────────────────────────────┘

Each connection is a session of its own. A worker knows what it holds; a new session begins with
that (REGISTER), and ends the session before it in the same step. So it does not matter which
commands of a lost connection were carried out: the counts they changed belong to a session that
is no longer summed, and one that arrives late is refused. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from valkey.asyncio import Connection
from valkey.asyncio.connection import parse_url
from valkey.exceptions import ResponseError, ValkeyError

from gateway.shared.patience import patiently
from gateway.shared.scripts import BEAT, REGISTER, Script
from gateway.shared.slots import PUMP, TAKE
from gateway.shared.windows import ENTER, LEAVE

log = logging.getLogger("gateway.shared")

# Valkey answers in well under a millisecond; what takes this long is not there.
ANSWER_S: Final = 0.5
CONNECT_S: Final = 1.0
BEAT_S: Final = 1.0
# A worker that says nothing for so long is taken for dead, and what it held is free.
LIFE_US: Final = 5_000_000
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
# One script is some ten microseconds of Valkey's time: a batch ends long before ANSWER_S.
BATCH: Final = 256

SCRIPTS: Final = (REGISTER, BEAT, TAKE, PUMP, ENTER, LEAVE)

Word = str | int | bytes
Answered = Callable[[Any], None]  # with the answer; with None when there will be none


class Holder(Protocol):
    """Somebody who holds counts in Valkey."""

    def held(self) -> list[Word]:
        """Its arguments for REGISTER, at this moment."""

    def lost(self) -> None:
        """Valkey is gone; every open command has been answered with None."""

    def found(self) -> None:
        """Valkey is back, and knows what `held` said."""


@dataclass(slots=True)
class Command:
    script: Script
    words: tuple[Word, ...]
    answered: Answered


class Link:
    """Call `add` for each holder in REGISTER's order, then `run`. One event loop.

    `worker`: a name that no other process ever had.
    """

    def __init__(self, url: str, worker: str) -> None:
        self._place = parse_url(url)
        self._worker = worker
        self._sessions = 0
        self._holders: list[Holder] = []
        self._open: deque[Command] = deque()  # in order; those that were sent come first
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self.up = False

    @property
    def busy(self) -> bool:
        """Commands are on their way."""
        return bool(self._open)

    def add(self, holder: Holder) -> None:
        self._holders.append(holder)

    def send(self, script: Script, words: tuple[Word, ...], answered: Answered) -> None:
        """Send a command after all earlier ones. Only while `up`."""
        self._open.append(Command(script, words, answered))
        self._wake.set()

    async def settled(self, within_s: float) -> None:
        """Wait until Valkey is there, or the first try has failed."""
        try:
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Keep the connection, until cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            connection = Connection(**self._place, socket_timeout=None)
            try:
                await self._connect(connection)
                self._begin()
                pause = FIRST_PAUSE_S
                await self._serve(connection)
            except (ValkeyError, OSError, TimeoutError) as error:
                self._end(error)
            except asyncio.CancelledError as stop:
                self._end(stop)
                raise
            finally:
                await connection.disconnect(nowait=True)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spread, not secret
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _connect(self, connection: Connection) -> None:
        async with asyncio.timeout(CONNECT_S):
            await connection.connect()  # type: ignore[no-untyped-call]
            for script in SCRIPTS:
                await connection.send_command("SCRIPT", "LOAD", script.text)
                await connection.read_response()

    def _begin(self) -> None:
        """A new session. Commands sent from here on follow its REGISTER."""
        before = f"{self._worker}.{self._sessions}" if self._sessions else ""
        self._sessions += 1
        words = [word for holder in self._holders for word in holder.held()]
        self.up = True
        self.send(REGISTER, (before, LIFE_US, *words), _joined)
        self._settled.set()
        for holder in self._holders:
            holder.found()

    def _end(self, error: BaseException) -> None:
        news = self.up or not self._settled.is_set()
        if news and not isinstance(error, asyncio.CancelledError):
            log.warning("Valkey: %s, this worker serves with its share of all limits", _why(error))
        self._settled.set()
        if not self.up:
            return
        self.up = False
        lost, self._open = self._open, deque()
        for command in lost:
            command.answered(None)
        for holder in self._holders:
            holder.lost()

    async def _serve(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + BEAT_S
        while True:
            await self._work(beat_at - loop.time())
            if loop.time() >= beat_at:
                beat_at = loop.time() + BEAT_S
                self.send(BEAT, (LIFE_US,), unheard)
            await patiently(ANSWER_S, self._batch(connection))

    async def _work(self, within_s: float) -> None:
        """Wait for a command, at most until the next heartbeat."""
        if self._open:
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _batch(self, connection: Connection) -> None:
        session = f"{self._worker}.{self._sessions}"
        size = min(len(self._open), BATCH)
        packed = [_words(self._open[i], session) for i in range(size)]
        await connection.send_packed_command(connection.pack_commands(packed), check_health=False)
        for _ in range(size):
            answer = await connection.read_response()
            self._open.popleft().answered(answer)


def _words(command: Command, session: str) -> tuple[Word, ...]:
    return ("EVALSHA", command.script.sha, 0, session, *command.words)


def unheard(_: object) -> None:
    """Nothing to learn from the answer."""


def _joined(answer: object) -> None:
    if answer is not None:
        log.info("Valkey: connected, all limits are shared")


def _why(error: BaseException) -> str:
    """In a few words, without addresses or commands."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ResponseError):
        return f"refused a command ({str(error)[:80]})"
    return f"not reachable ({type(error).__name__})"
