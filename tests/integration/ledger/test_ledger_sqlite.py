"""The ledger in a SQLite file: kills, neighbours, full disks, files that go bad."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from common.ledgers import count, numbers, running, sums, until
from common.servers import ROOT, base_environment

from gateway.ledger.ledger import Ledger
from gateway.ledger.opening import open_ledger

CHILD = Path(__file__).with_name("ledger_child.py")
PATHS = f"{ROOT}:{ROOT / 'tests'}"


def command(*words: str) -> list[str]:
    return [sys.executable, str(CHILD), *words]


def environment(**extra: str) -> dict[str, str]:
    return {**base_environment(), "PYTHONPATH": PATHS, **extra}


def opened(path: Path) -> Ledger:
    ledger = open_ledger(str(path))
    assert ledger is not None
    return ledger


def test_a_kill_loses_nothing_older_than_a_second(tmp_path: Path) -> None:
    path = tmp_path / "u.sqlite3"
    times: list[int] = []
    with subprocess.Popen(
        command("endless", str(path)), env=environment(), stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            times.append(int(line))
            if times[-1] - times[0] > 2_500_000_000 and child.poll() is None:
                child.kill()
    old = sum(1 for each in times if each < times[-1] - 1_000_000_000)
    assert old > 100
    found = sums(str(path))
    assert old <= found.requests <= len(times) + 1  # the last one's line may not have been written
    assert found.prompt_tokens == 3 * found.requests
    assert found.completion_tokens == 5 * found.requests


def test_processes_that_share_a_file_lose_nothing(tmp_path: Path) -> None:
    """Also when they make it at the same moment."""
    path = tmp_path / "u.sqlite3"
    children = [
        subprocess.Popen(command("some", str(path), "1500"), env=environment()) for _ in range(3)
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert numbers(str(path)) == (4500, 13_500, 22_500)


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*in_a_mount(), "true"], capture_output=True, check=False).returncode == 0


def in_a_mount() -> list[str]:
    return ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]


def test_a_full_disk_fails_no_request_and_loses_none(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("this user may mount nothing")
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=512k none "$0" && exec "$@"'
    done = subprocess.run(
        [*in_a_mount(), "sh", "-c", script, str(disk), *command("full", str(disk))],
        env=environment(LOG_FILE=str(log)),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    during, after = (json.loads(line) for line in done.stdout.splitlines())
    assert "full" in during["log"] or "disk I/O error" in during["log"]
    assert after["sums"] == [2002, 6006, 10_010]
    assert after["log"].count("writing fails") == 1
    assert after["log"].count("writing works again") == 1


def test_a_file_that_is_broken_during_the_run_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "u.sqlite3"

    async def scenario() -> None:
        ledger = opened(path)
        async with running(ledger):
            count(ledger)
            await until(lambda: numbers(str(path))[0] == 1)
            replace(path, b"no database " * 1000)
            count(ledger)
            await until(lambda: "writing fails" in caplog.text)
            count(ledger)
            path.unlink()
            await until(lambda: path.exists() and numbers(str(path))[0] == 2)

    asyncio.run(scenario())
    assert caplog.text.count("writing fails") == 1
    assert "not a database" in caplog.text
    assert caplog.text.count("writing works again") == 1
    assert numbers(str(path)) == (2, 6, 10)


def replace(path: Path, data: bytes) -> None:
    """Another file in its place, as a wrong restore leaves it."""
    other = path.with_name("other")
    other.write_bytes(data)
    other.replace(path)
    for name in ("u.sqlite3-wal", "u.sqlite3-shm"):
        path.with_name(name).unlink(missing_ok=True)


def test_what_cannot_be_written_until_the_end_is_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "u.sqlite3"

    async def scenario() -> None:
        ledger = opened(path)
        async with running(ledger):
            replace(path, b"no database " * 1000)
            for _ in range(5):
                count(ledger)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    lost = [line for line in caplog.messages if "stopped without writing" in line]
    assert lost == [
        "usage ledger: stopped without writing 5 requests, 15 prompt and 25 completion tokens; "
        "the request lines of the log have them"
    ]


def test_the_report_reads_while_the_ledger_is_written(tmp_path: Path) -> None:
    path = tmp_path / "u.sqlite3"

    async def scenario() -> tuple[int, str]:
        ledger = opened(path)
        async with running(ledger):
            for number in range(20):
                count(ledger, f"k{number % 2}")
            await until(lambda: numbers(str(path))[0] == 20)
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.ledger", "--by", "key"),
                env=environment(GATEWAY_USAGE_DB=str(path)),
                stdout=subprocess.PIPE,
            )
            out, _ = await child.communicate()
        return child.returncode or 0, out.decode()

    code, out = asyncio.run(scenario())
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["k0", "10"],
        ["k1", "10"],
        ["total", "20"],
    ]
