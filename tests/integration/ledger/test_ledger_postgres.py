"""The ledger in PostgreSQL: restarts, connections that end at a commit, passwords, neighbours."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from common.cutter import Cutter
from common.ledgers import CHAT, count, numbers, running, until
from common.postgres import PASSWORD, USER, PostgreSQL
from sqlalchemy.exc import DBAPIError
from test_ledger_sqlite import command, environment

from gateway.ledger.ledger import STOP_S, Ledger
from gateway.ledger.opening import open_ledger
from gateway.ledger.store import Batch, Rows, Store
from gateway.ledger.target import parse

ROWS: Rows = {(3600, f"k{number}", "m", CHAT, "ok"): [1, 3, 5, 0] for number in range(10)}


def opened(value: str) -> Ledger:
    ledger = open_ledger(value)
    assert ledger is not None
    return ledger


def store(value: str) -> Store:
    target = parse(value)
    assert target is not None
    return Store(target)


def write_once(value: str, rows: Rows) -> None:
    ledger = store(value)
    ledger.write(Batch(1, rows))
    ledger.close()


def insist(ledger: Store, batch: Batch) -> None:
    """Until it is in, as the ledger does."""
    for _ in range(20):
        try:
            ledger.write(batch)
        except DBAPIError:
            continue
        return
    raise AssertionError("not written in 20 attempts")


@pytest.mark.parametrize("word", ["before", "after", "late"])
@pytest.mark.parametrize("first", [True, False], ids=["first batch", "later batch"])
def test_a_batch_whose_fate_is_unknown_is_in_once(
    server: PostgreSQL, database: str, word: str, first: bool
) -> None:
    plan = ["pass", word] if first else ["pass", "pass", word]
    with Cutter(server.port, plan) as cutter:
        ledger = store(server.url(database, cutter.port))
        for number in (1, 2, 3):
            insist(ledger, Batch(number, ROWS))
        ledger.close()
    assert not cutter.plan
    assert numbers(server.url(database, server.port)) == (30, 90, 150)


def test_sums_are_right_on_a_network_that_fails_all_the_time(
    server: PostgreSQL, database: str
) -> None:
    words = random.Random(3).choices(["pass", "before", "after"], k=60)  # noqa: S311
    with Cutter(server.port, words) as cutter:
        ledger = store(server.url(database, cutter.port))
        for number in range(1, 41):
            insist(ledger, Batch(number, ROWS))
        ledger.close()
    assert numbers(server.url(database, server.port)) == (400, 1200, 2000)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["in order", "at once"])
def test_a_restart_in_the_middle_loses_nothing(
    server: PostgreSQL, database: str, how: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    value = server.url(database, server.port)

    async def scenario() -> None:
        ledger = opened(value)
        async with running(ledger):
            for number in range(400):
                count(ledger, f"k{number % 3}")
                await asyncio.sleep(0.001)
                if number == 200:
                    await asyncio.to_thread(server.stop, how)
                    await until(lambda: "writing fails" in caplog.text)
            await asyncio.to_thread(server.start)
            await until(lambda: numbers(value)[0] == 400)

    asyncio.run(scenario())
    assert numbers(value) == (400, 1200, 2000)
    ours = [each for each in caplog.messages if each.startswith("usage ledger:")]
    assert [line.split(" (")[0] for line in ours] == [
        "usage ledger: writing fails",
        "usage ledger: writing works again, nothing is lost",
    ]
    assert len(caplog.messages) == len(ours)  # neither the pool nor the driver adds lines
    assert "LEAKMARK" not in caplog.text


def test_a_server_that_is_down_at_the_start_is_waited_for(
    server: PostgreSQL, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the password in a file, as Docker secrets have it, that comes and changes later."""
    secret = tmp_path / "pw"
    secret.write_text("wrong-LEAKMARK\n")
    secret.chmod(0o444)
    value = f"postgres://{USER}@127.0.0.1:{server.port}/{database}?password_file={secret}"

    async def scenario() -> None:
        ledger = opened(value)
        async with running(ledger):
            count(ledger)
            await until(lambda: "writing fails" in caplog.text)
            other = secret.with_name("new")
            other.write_text(f"{PASSWORD}\n")
            other.replace(secret)
            await asyncio.to_thread(server.start)
            await until(lambda: numbers(value)[0] == 1)

    server.stop()
    asyncio.run(scenario())
    assert "LEAKMARK" not in caplog.text


def test_a_wrong_password_is_said_without_it(
    server: PostgreSQL, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    value = f"postgresql://{USER}:wrong-LEAKMARK@127.0.0.1:{server.port}/{database}"

    async def scenario() -> None:
        ledger = opened(value)
        async with running(ledger):
            await until(lambda: "writing fails" in caplog.text)

    asyncio.run(scenario())
    assert "password authentication failed" in caplog.text
    assert "LEAKMARK" not in caplog.text


def test_a_newer_schema_is_left_alone(
    server: PostgreSQL, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    value = server.url(database, server.port)
    write_once(value, ROWS)
    with server.connect(database) as connection:
        connection.execute("UPDATE usage_version SET version = 2")

    async def scenario() -> None:
        ledger = opened(value)
        async with running(ledger):
            count(ledger)
            await until(lambda: "schema version 2" in caplog.text)

    asyncio.run(scenario())
    with server.connect(database) as connection:
        found = connection.execute("SELECT sum(requests) FROM usage").fetchone()
    assert found == (10,)


def test_processes_that_share_a_database_lose_nothing(server: PostgreSQL, database: str) -> None:
    """Also when they make its tables at the same moment."""
    value = server.url(database, server.port)
    children = [
        subprocess.Popen(command("some", value, "1500"), env=environment()) for _ in range(3)
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert numbers(value) == (4500, 13_500, 22_500)


def test_a_server_that_never_answers_does_not_hold_up_the_end(
    server: PostgreSQL, database: str
) -> None:
    """The process ends although a thread of its still waits: that wait would last for minutes."""
    with Cutter(server.port, ["pass", "hang"]) as cutter:
        value = server.url(database, cutter.port)
        started = time.monotonic()
        child = subprocess.Popen(command("some", value, "200"), env=environment())
        assert child.wait(30) == 0
        assert time.monotonic() - started > STOP_S
    assert not cutter.plan


def test_labels_that_a_database_refuses_do_not_stop_the_rest(
    server: PostgreSQL, database: str
) -> None:
    value = server.url(database, server.port)
    odd = ("a\0b", "\ud800", "x" * 9000, "ü", "tab\t")
    rows: Rows = {(0, name, name, CHAT, "ok"): [1, 3, 5, 0] for name in odd}
    write_once(value, rows)
    assert numbers(value) == (5, 15, 25)
