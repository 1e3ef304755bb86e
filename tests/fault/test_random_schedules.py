"""Random exchanges, up to eight at a time: no wrong byte, no wrong outcome, and nothing left over.

An example is a handful of schedules (tests/common/schedule.py) at once, through one gateway with
four slots, so that some wait in its queue. 500 examples by default; the full run is

    RANDOM_SCHEDULES=10000 .venv/bin/python -m pytest tests/fault/test_random_schedules.py
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from common.crowd import Result, visit
from common.fake_vllm import FakeVLLM
from common.load import counted
from common.schedule import Schedule, schedules
from common.servers import CHAT, PlainGateway, wait_until, write_keys
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("RANDOM_SCHEDULES", "500"))
SLOTS = 4
# Idle connections to the engine, and a probe or a status request at that moment.
SPARE_FILES = SLOTS + 4
WARM_UP = 100
GROWTH = 24 << 20


@dataclass
class Stage:
    """One gateway and one engine for all examples."""

    gateway: PlainGateway
    engine: FakeVLLM
    files: int = 0
    rss: int = 0
    examples: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)
    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    read: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def take_lines(self) -> None:
        """Log lines since the last call, by request id; a second one for an id fails."""
        fresh = self.gateway.lines[self.read :]
        self.read += len(fresh)
        for line in map(json.loads, fresh):
            assert "trace" not in line, line
            if line["event"] == "request":
                assert line["request_id"] not in self.lines, line
                self.lines[line["request_id"]] = line
                self.outcomes[line["outcome"]] += line["route"] == CHAT

    def play(self, batch: list[Schedule]) -> None:
        """Run a batch at once and judge each."""
        self.examples += 1
        self.lines.clear()
        named = {f"r{next(self.numbers)}": schedule for schedule in batch}
        self.engine.by_id.update({name.encode(): one.script() for name, one in named.items()})
        results = self.engine.run(visit_all(self.gateway.port, named))
        self.wait_for_lines({name for name, one in named.items() if one.manner.send_only is None})
        for (name, schedule), result in zip(named.items(), results, strict=True):
            try:
                schedule.judge(result, self.lines.get(name))
            except AssertionError as error:
                raise AssertionError(f"{error}\n{schedule}\n{result}") from error
        self.engine.clear()
        if self.examples == WARM_UP:
            self.rss = self.gateway.rss

    def wait_for_lines(self, names: set[str]) -> None:
        end = time.monotonic() + 10
        while not names <= self.lines.keys():
            assert time.monotonic() < end, f"no line for {names - self.lines.keys()}"
            self.take_lines()
            time.sleep(0.0005)

    def nothing_left(self) -> bool:
        counts = self.gateway.status()["gateway"]
        return (
            counts["in_flight"] == counts["queued"] == 0
            and self.gateway.open_files <= self.files + SPARE_FILES
        )


async def visit_all(port: int, named: dict[str, Schedule]) -> list[Result]:
    visits = [visit(port, one.request(name), one.manner) for name, one in named.items()]
    return await asyncio.gather(*visits)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    keys = write_keys(tmp_path_factory.mktemp("keys"))
    with FakeVLLM() as engine, PlainGateway(keys, engine.url, max_concurrency=SLOTS) as gateway:
        gateway.wait_ready()
        yield Stage(gateway, engine, files=gateway.open_files)


@pytest.mark.timeout(120 + EXAMPLES // 5)
def test_random_schedules(stage: Stage) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate],  # what depends on timing does not shrink
        suppress_health_check=list(HealthCheck),
        database=None,
        print_blob=True,
    )
    @given(st.lists(schedules(), min_size=1, max_size=8))
    def run(batch: list[Schedule]) -> None:
        stage.play(batch)
        if stage.examples % 50 == 0:
            wait_until(stage.nothing_left)

    run()
    wait_until(stage.nothing_left)
    stage.engine.wait_until(lambda: stage.engine.open_connections <= SPARE_FILES)
    assert stage.examples >= EXAMPLES
    stage.take_lines()
    for outcome, number in stage.outcomes.items():
        found = counted(stage.gateway, "gateway_requests_total", route=CHAT, outcome=outcome)
        assert found == number, outcome
    assert stage.gateway.rss - (stage.rss or stage.gateway.rss) < GROWTH
