"""The numbers, and the order in which they are taken.

Within a repeat all contenders take turns for each kind of load, so that what disturbs the machine
for a while disturbs all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from statistics import median

from bench.gateway.answers import PROMPT_TOKENS, UNARY_TOKENS
from bench.gateway.contenders import BenchError, Contender
from bench.gateway.fake import INTERVAL_MS
from bench.gateway.load import (
    StreamRun,
    UnaryRun,
    chat_body,
    get,
    leave_streams,
    run_streams,
    run_unary,
)
from bench.gateway.machine import Foreign
from bench.gateway.stats import Numbers, put

Step = Callable[[Contender], Awaitable[None]]

KINDS = ("streaming", "unary", "bodies", "cancels")
SCRAPE_S = 5.0
LEAVERS = 50
BODY_BYTES = 1_000_000
BODY_CALLERS = 8
# A cancelled answer that nobody stops runs to its end at the engine: three seconds.
CANCEL_TOKENS = 150
QUIET_S = 30.0


@dataclass
class Sent:
    """What one contender was asked and answered in full. Tokens as the engine counts them."""

    streams: int = 0
    unary: int = 0
    left: int = 0
    failed: int = 0
    completion_tokens: int = 0

    @property
    def requests(self) -> int:
        return self.streams + self.unary

    @property
    def prompt_tokens(self) -> int:
        return self.requests * PROMPT_TOKENS

    def add_streams(self, run: StreamRun, tokens: int) -> None:
        self.streams += run.complete
        self.failed += run.failed
        self.completion_tokens += run.complete * tokens

    def add_unary(self, complete: int, failed: int) -> None:
        self.unary += complete
        self.failed += failed
        self.completion_tokens += complete * UNARY_TOKENS


@dataclass(frozen=True)
class Plan:
    kinds: Sequence[str]
    streams: Sequence[int]
    repeats: int
    seconds: float


@dataclass
class Bench:
    """State of one benchmark. `say` takes one line of progress."""

    plan: Plan
    engine: Contender
    contenders: Sequence[Contender]
    say: Callable[[str], None]
    foreign: Foreign
    numbers: Numbers = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    disturbed: list[float] = field(default_factory=list)  # share of the cores, a measurement each

    async def run(self) -> None:
        """Everything that the plan asks for. BenchError when the fake engine does not follow."""
        scraping = asyncio.ensure_future(self._scrape())
        try:
            await self._all()
        finally:
            scraping.cancel()
            await asyncio.gather(scraping, return_exceptions=True)

    async def _all(self) -> None:
        for contender in self.contenders:
            self.sent[contender.name] = Sent()
            await self._warm_up(contender)
        for repeat in range(self.plan.repeats):
            self.say(f"repeat {repeat + 1} of {self.plan.repeats}")
            for step in self._steps():
                for contender in self.contenders:
                    self.foreign.share()
                    await step(contender)
                    self.disturbed.append(self.foreign.share())
                    await self._quiet()

    def _steps(self) -> list[Step]:
        steps: dict[str, list[Step]] = {
            "streaming": [partial(self._streaming, streams) for streams in self.plan.streams],
            "unary": [self._unary],
            "bodies": [self._bodies],
            "cancels": [self._cancels],
        }
        return [step for kind in KINDS if kind in self.plan.kinds for step in steps[kind]]

    async def _streaming(self, streams: int, contender: Contender) -> None:
        """CPU of the whole run, its begin and end included, by chunks that arrived."""
        tokens = int(self.plan.seconds * 1000 / INTERVAL_MS)
        rss: list[float] = []
        before = contender.cpu_s()
        run = await run_streams(
            contender.target, streams, tokens, lambda: rss.append(contender.rss_mb())
        )
        cpu_s = contender.cpu_s() - before
        self.sent[contender.name].add_streams(run, tokens)
        self._put(contender, f"rate_{streams}", run.rate)
        if contender is not self.engine and run.chunks:
            self._put(contender, f"cpu_{streams}", cpu_s / run.chunks * 100_000)
            self._put(contender, f"rss_{streams}", rss[0])

    async def _unary(self, contender: Contender) -> None:
        before = contender.cpu_s()
        crowd = await self._call(contender, 64, self.plan.seconds / 2, chat_body())
        if contender is not self.engine and crowd.complete:
            cpu_us = (contender.cpu_s() - before) * 1e6 / crowd.complete
            self._put(contender, "unary_cpu_us", cpu_us)
        alone = await self._call(contender, 1, self.plan.seconds / 4, chat_body())
        self._put(contender, "unary", crowd.rate)
        self._put(contender, "p50_ms", median(alone.latencies or [inf]) * 1000)

    async def _bodies(self, contender: Contender) -> None:
        body = chat_body("x" * BODY_BYTES)
        run = await self._call(contender, BODY_CALLERS, self.plan.seconds / 2, body)
        self._put(contender, "bodies", run.rate)

    async def _call(
        self, contender: Contender, callers: int, seconds: float, body: bytes
    ) -> UnaryRun:
        run = await run_unary(contender.target, callers, seconds, body)
        self.sent[contender.name].add_unary(run.complete, run.failed)
        return run

    async def _cancels(self, contender: Contender) -> None:
        """How many of fifty the engine saw closed within a second of their leaving."""
        streaming = chat_body(stream=True, max_tokens=CANCEL_TOKENS)
        silent = chat_body(stream=True, user="hold")
        for metric, body, started in (("mid", streaming, True), ("before", silent, False)):
            seen = (await self._counters())["left"]
            left = await leave_streams(contender.target, LEAVERS, body, started)
            self.sent[contender.name].left += left
            await asyncio.sleep(1.0)
            self._put(contender, f"cancels_{metric}", (await self._counters())["left"] - seen)
            await self._quiet()

    async def _warm_up(self, contender: Contender) -> None:
        sent = self.sent[contender.name]
        sent.add_streams(await run_streams(contender.target, 8, 25), 25)
        await self._call(contender, 8, 0.5, chat_body())

    async def _quiet(self) -> None:
        """Until nothing runs at the engine: a cancel that nobody passed on runs to its end."""
        end = asyncio.get_running_loop().time() + QUIET_S
        while (await self._counters())["running"]:
            if asyncio.get_running_loop().time() > end:
                raise BenchError(f"the fake engine is still busy after {QUIET_S:g} s")
            await asyncio.sleep(0.05)

    async def _counters(self) -> dict[str, int]:
        _, body = await get(self.engine.target.port, "/bench/counters")
        counters: dict[str, int] = json.loads(body)
        return counters

    async def _scrape(self) -> None:
        """What a Prometheus does to our gateway meanwhile."""
        ours = [each for each in self.contenders if each.name == "gateway"]
        while ours:
            await asyncio.sleep(SCRAPE_S)
            with suppress(OSError, TimeoutError):  # late: the next one follows
                await get(ours[0].target.port, "/metrics")

    def _put(self, contender: Contender, metric: str, value: float) -> None:
        put(self.numbers, contender.name, metric, value)
