"""Counting in memory: what add keeps, its bounds, and what a store is handed."""

from __future__ import annotations

import asyncio

import pytest
from common.ledgers import CHAT, running, until

from gateway.ledger import ledger as module
from gateway.ledger.ledger import Ledger, Trouble
from gateway.ledger.store import LONGEST, Batch, Labels, Store, parameters
from gateway.ledger.tables import COUNTS, LABELS

HOUR = 3600


class Kept(Store):
    """Takes batches and keeps them, or raises."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.fails = False
        self.attempts = 0

    def write(self, batch: Batch) -> None:
        self.attempts += 1
        if self.fails:
            raise OSError("no")
        self.batches.append(batch)

    def close(self) -> None:
        """Nothing is open."""

    def describe(self, error: BaseException) -> str:
        return str(error)

    @property
    def rows(self) -> dict[Labels, list[int]]:
        return {labels: counts for batch in self.batches for labels, counts in batch.rows.items()}


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def clock() -> Clock:
    return Clock(10 * HOUR + 1.5)


def test_equal_labels_are_one_row_and_hours_are_apart(kept: Kept, clock: Clock) -> None:
    ledger = Ledger(kept, clock)
    for estimated in (False, True, False):
        ledger.add("a", "m", CHAT, "ok", 3, 5, estimated)
    ledger.add("a", "m", CHAT, "client_left", 1, 0, True)
    clock.now = 11 * HOUR
    ledger.add("a", "m", CHAT, "ok", 7, 9, False)
    asyncio.run(ledger.close())
    assert kept.rows == {
        (10 * HOUR, "a", "m", CHAT, "ok"): [3, 9, 15, 1],
        (10 * HOUR, "a", "m", CHAT, "client_left"): [1, 1, 0, 1],
        (11 * HOUR, "a", "m", CHAT, "ok"): [1, 7, 9, 0],
    }


@pytest.mark.parametrize("tokens", [-1, 1 << 64])
def test_what_no_request_can_have_is_not_counted(kept: Kept, tokens: int) -> None:
    """An engine's mistake must not make the sums of all others wrong, or a batch unwritable."""
    ledger = Ledger(kept, Clock(0))
    ledger.add("a", "m", CHAT, "ok", tokens, tokens, False)
    ledger.add("a", "m", CHAT, "ok", 1, 2, False)
    asyncio.run(ledger.close())
    assert list(kept.rows.values()) == [[2, 1, 2, 0]]


def test_memory_has_an_end_while_the_database_is_down(
    kept: Kept, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past it, hours run together; requests and tokens are still all there."""
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    ledger = Ledger(kept, clock)
    for hour in range(1000):
        clock.now = hour * HOUR
        for key in ("a", "b", "c"):
            ledger.add(key, "m", CHAT, "ok", 1, 2, False)
    asyncio.run(ledger.close())
    assert len(kept.rows) < 10 + 3
    assert sum(counts[0] for counts in kept.rows.values()) == 3000
    assert sum(counts[2] for counts in kept.rows.values()) == 6000


def test_a_batch_is_the_same_until_it_is_in(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted meanwhile goes into the next one."""
    monkeypatch.setattr(module, "PERIOD_S", 0.001)

    async def scenario() -> None:
        ledger = Ledger(kept, Clock(0))
        async with running(ledger):
            await until(lambda: kept.batches)
            kept.fails = True
            ledger.add("a", "m", CHAT, "ok", 1, 1, False)
            await until(lambda: kept.attempts > 3)
            ledger.add("b", "m", CHAT, "ok", 1, 1, False)
            assert ledger.pending == 2
            assert ledger.failures >= 2
            kept.fails = False
            await until(lambda: ledger.pending == 0)

    asyncio.run(scenario())
    full = [(batch.number, [labels[1] for labels in batch.rows]) for batch in kept.batches[-2:]]
    assert full == [(1, ["a"]), (2, ["b"])]


def test_one_failure_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble()
    trouble.began("cut")
    trouble.ended()
    assert not caplog.messages
    pauses = []
    for _ in range(40):
        trouble.began("down")
        pauses.append(trouble.pause_s)
    trouble.ended()
    assert [line.split(" (")[0] for line in caplog.messages] == [
        "usage ledger: writing fails",
        "usage ledger: writing works again, nothing is lost",
    ]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (module.PERIOD_S, module.LONGEST_PAUSE_S)


def test_labels_are_made_fit_and_rows_sorted() -> None:
    rows = {
        (0, "b", "x" * 1000, CHAT, "ok"): [1, 1, 1, 1],
        (0, "b", "x" * 2000, CHAT, "ok"): [1, 2, 3, 0],
        (0, "a\0\ud800", "ü", CHAT, "ok"): [1, 0, 0, 0],
    }
    made = parameters(rows)
    names = (*LABELS, *COUNTS)
    assert [[row[name] for name in names] for row in made] == [
        [0, "a\\x00\\ud800", "ü", CHAT, "ok", 1, 0, 0, 0],
        [0, "b", "x" * LONGEST, CHAT, "ok", 2, 3, 4, 1],
    ]
