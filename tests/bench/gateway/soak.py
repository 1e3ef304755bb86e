"""`python -m bench.gateway.soak`: mixed load for an hour; does anything grow?

Each minute a line. Exit codes: 0 flat and every request ended as it should, 1 not, 2 it could not
run, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop

from bench.gateway.__main__ import say, two_cores
from bench.gateway.contenders import BenchError, Contender, Place, fake_engine, gateway
from bench.gateway.crowd import Crowd
from bench.gateway.load import get
from bench.gateway.machine import open_files

CLIENTS = 60
# Time for caches and pools to fill, as a share of the whole; memory counts from there on.
WARM_UP = 0.2
# Memory may drift by so much from the first to the last look after the warm-up.
MAY_GROW_MB = 6.0
# Idle connections to the engine stay for a minute; two more files are the load of this look.
SETTLE_S = 90.0
SPARE_FILES = 2


@dataclass(frozen=True)
class Look:
    """The gateway at one moment. `at`: seconds since the start."""

    at: float
    rss_mb: float
    files: int
    in_flight: int
    queued: int


def growth_mb(looks: Sequence[Look]) -> float:
    """How much memory grew after the warm-up: the typical slope (median of all pairs, so that a
    single peak counts for little) times the time it was watched."""
    warm = [look for look in looks if look.at >= looks[-1].at * WARM_UP]
    slopes = [
        (b.rss_mb - a.rss_mb) / (b.at - a.at)
        for number, a in enumerate(warm)
        for b in warm[number + 1 :]
    ]
    return median(slopes) * (warm[-1].at - warm[0].at) if slopes else 0.0


def verdict(looks: Sequence[Look], before: Look, after: Look, wrong: int) -> list[str]:
    """What is not as it should be; none is good."""
    grown = growth_mb(looks)
    findings = []
    if grown > MAY_GROW_MB:
        findings.append(f"memory: grew by {grown:.1f} MB after the warm-up, may {MAY_GROW_MB:g}")
    if after.files > before.files + SPARE_FILES:
        findings.append(f"open files: {before.files} before the load, {after.files} after it")
    if after.in_flight or after.queued:
        findings.append(f"slots: {after.in_flight} in flight and {after.queued} queued at the end")
    if wrong:
        findings.append(f"answers: {wrong} did not end as they should")
    return findings


@dataclass
class Soak:
    gateway: Contender
    minutes: float
    crowd: Crowd

    async def run(self) -> list[str]:
        """The findings."""
        self._begin = time.monotonic()
        before = await self._look()
        say(self._line(before))
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.crowd.run(CLIENTS, stop))
            looks = await self._watch()
            stop.set()
        after = await self._settled(before)
        say(self._line(after))
        say(f"memory after the warm-up: {growth_mb(looks):+.1f} MB")
        say(f"ended well: {dict(self.crowd.ended)}; not: {dict(self.crowd.wrong)}")
        return verdict(looks, before, after, self.crowd.wrong.total())

    async def _watch(self) -> list[Look]:
        """A look each minute; in a short run ten of them."""
        looks: list[Look] = []
        pause_s = min(60.0, self.minutes * 6)
        while time.monotonic() - self._begin < self.minutes * 60:
            await asyncio.sleep(pause_s)
            looks.append(await self._look())
            say(self._line(looks[-1]))
        return looks

    async def _settled(self, before: Look) -> Look:
        """Once idle connections have expired, or when they should have."""
        end = time.monotonic() + SETTLE_S
        while (after := await self._look()).files > before.files + SPARE_FILES:
            if time.monotonic() > end:
                break
            await asyncio.sleep(1)
        return after

    async def _look(self) -> Look:
        _, body = await get(self.gateway.target.port, "/status", 10)
        now = json.loads(body)["gateway"]
        files = open_files(self.gateway.process.pid)
        at = time.monotonic() - self._begin
        return Look(at, self.gateway.rss_mb(), files, now["in_flight"], now["queued"])

    def _line(self, look: Look) -> str:
        ended, wrong = self.crowd.ended.total(), self.crowd.wrong.total()
        return (
            f"{look.at / 60:6.1f} min  rss {look.rss_mb:6.1f} MB  files {look.files:4d}  "
            f"in flight {look.in_flight:4d}  queued {look.queued:3d}  "
            f"ended {ended:8d}  wrong {wrong:3d}"
        )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak-gateway", description="Does anything grow?")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        findings = soak(options.minutes, options.seed)
    except BenchError as error:
        say(f"soak-gateway: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    say("\n".join(findings) or "flat: memory, files and slots as they were")
    return 1 if findings else 0


def soak(minutes: float, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="soak-gateway-") as folder, ExitStack() as stack:
        place = Place(*two_cores(), Path(folder))
        engine = stack.enter_context(fake_engine(place))
        ours = stack.enter_context(gateway(place, f"http://127.0.0.1:{engine.target.port}"))
        os.sched_setaffinity(0, {place.load_core})
        findings: list[str] = uvloop.run(Soak(ours, minutes, Crowd(ours.target, seed)).run())
    return findings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
