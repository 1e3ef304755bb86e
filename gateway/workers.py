"""The manager of several workers. With one worker it is not there at all.

    bind once ─▶ start N workers on that socket ─▶ wait
      a worker ended ─▶ its slots are freed, its gauges go, another one starts
                        (after a pause that grows while they do not last)
      FUTILE starts in a row and nobody serves ─▶ stop, exit 1
      SIGTERM, SIGINT ─▶ to every worker; each drains; exit 0 when all of them did
      the manager is killed ─▶ every worker sees its lifeline end, and drains

The socket is bound here and only lent to workers: a connection that no worker has taken yet
outlives any of them. Workers are fresh interpreters; nothing is forked with a running loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

from gateway.keys import read_keys
from gateway.ledger.opening import check as check_ledger
from gateway.metrics.metrics import SHARED_BY
from gateway.settings import Settings
from gateway.shared.undertaker import bury

log = logging.getLogger("gateway.workers")

FAULT: Final = 1
# A worker that served for so long was well: the next one starts at once.
WELL_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
# Starts in a row that never served, while no other worker does either.
FUTILE: Final = 3
# After the drain: error events, idle connections, the end of the interpreter.
AFTER_DRAIN_S: Final = 15.0


def manage(settings: Settings, listener: socket.socket) -> int:
    """Serve with `settings.workers` workers. The exit code. Raises KeyFileError, and
    SettingsError for a ledger that cannot be used: said once here, not by each worker."""
    read_keys(settings.api_keys_file)
    check_ledger(settings.usage_db)
    with tempfile.TemporaryDirectory(prefix="gateway-metrics-") as metrics:
        return asyncio.run(Manager(settings, listener, metrics).run())


@dataclass(eq=False)
class Worker:
    """One process. `lifeline`: our end of it."""

    name: str
    process: asyncio.subprocess.Process
    lifeline: socket.socket
    served: bool = False

    def signal(self, how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)


@dataclass(eq=False)
class Manager:
    """Keeps `settings.workers` workers until told to stop. `metrics`: folder of their metrics."""

    settings: Settings
    listener: socket.socket
    metrics: str
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _workers: set[Worker] = field(default_factory=set)
    _run: str = field(default_factory=lambda: secrets.token_hex(8))
    _starts: int = 0
    _futile: int = 0
    _announced: bool = False
    _code: int = 0

    async def run(self) -> int:
        """The exit code."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop, one)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.settings.workers):
                group.create_task(self._keep())
        return self._code

    def stop(self, how: signal.Signals) -> None:
        """Pass the signal on. A second SIGINT stops at once, as it does with one worker."""
        if not self._stopping.is_set():
            self._stopping.set()
            loop = asyncio.get_running_loop()
            loop.call_later(self.settings.drain_s + AFTER_DRAIN_S, self._signal, signal.SIGKILL)
        self._signal(how)

    def _signal(self, how: signal.Signals) -> None:
        for worker in self._workers:
            worker.signal(how)

    async def _keep(self) -> None:
        """One of N places: a worker, and another one after it."""
        pause = 0.0
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            how = await self._one_life()
            if self._stopping.is_set():
                return
            log.error("a worker ended (%s), another one starts", how)
            lasted = asyncio.get_running_loop().time() - began
            pause = 0.0 if lasted > WELL_S else min(max(FIRST_PAUSE_S, 2 * pause), LONGEST_PAUSE_S)
            await self._pause(pause)

    async def _one_life(self) -> str:
        """Start a worker, wait for its end, clear up after it; how it ended."""
        try:
            worker = await self._start()
        except OSError as error:
            self._count_futile()
            return error.strerror or type(error).__name__
        self._workers.add(worker)
        if self._stopping.is_set():  # told to stop while it was being started
            worker.signal(signal.SIGTERM)
        code = await self._ended(worker)
        self._workers.discard(worker)
        self._judge(worker, code)
        mark_process_dead(worker.process.pid, self.metrics)  # type: ignore[no-untyped-call]
        await bury(self.settings.valkey_url, worker.name)
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def _start(self) -> Worker:
        self._starts += 1
        name = f"{self._run}-{self._starts}"
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        fds = (self.listener.fileno(), theirs.fileno())
        flags = ["-P"] if sys.flags.safe_path else []
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *flags, "-m", "gateway.worker", name, *map(str, fds)),
                pass_fds=fds,
                process_group=0,  # of its own: Ctrl-C reaches it once, through us
                env={**os.environ, SHARED_BY: self.metrics},
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return Worker(name, process, ours)

    async def _ended(self, worker: Worker) -> int:
        """Its exit code, negative for a signal. Notes on the way that it serves."""
        with worker.lifeline:
            told = await asyncio.get_running_loop().sock_recv(worker.lifeline, 1)
            if told:
                worker.served = True
                self._announce()
            return await worker.process.wait()

    def _announce(self) -> None:
        self._futile = 0
        serving = sum(worker.served for worker in self._workers)
        if serving == self.settings.workers:
            host, port = self.listener.getsockname()[:2]
            again = " again" if self._announced else ""
            log.info("%d workers%s, listening on http://%s:%d", serving, again, host, port)
            self._announced = True

    def _judge(self, worker: Worker, code: int) -> None:
        """What its end means for all."""
        if self._stopping.is_set():
            early = not worker.served and code == -signal.SIGTERM  # no handler yet, nothing lost
            self._code = self._code if code == 0 or early else FAULT
        elif not worker.served:
            self._count_futile()

    def _count_futile(self) -> None:
        self._futile += 1
        if self._futile >= FUTILE and not any(worker.served for worker in self._workers):
            log.error("%d workers ended before they served, and none serves: stopping", FUTILE)
            self._code = FAULT
            self.stop(signal.SIGTERM)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
