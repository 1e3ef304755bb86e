"""Programs that tests run as processes of their own: `ledger_child.py NAME ARGUMENTS`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path

from common.ledgers import count, numbers, running, until

from gateway.ledger.ledger import Ledger
from gateway.ledger.opening import open_ledger


def opened(value: str) -> Ledger:
    ledger = open_ledger(value)
    assert ledger is not None
    return ledger


async def endless(value: str) -> None:
    """Count for ever and tell the time of each request, after it was counted."""
    ledger = opened(value)
    async with running(ledger):
        while True:
            count(ledger)
            os.write(1, f"{time.monotonic_ns()}\n".encode())
            await asyncio.sleep(0.001)


async def some(value: str, requests: str) -> None:
    """Count so many requests over several flushes, and end in order."""
    ledger = opened(value)
    async with running(ledger):
        for number in range(int(requests)):
            count(ledger, f"k{number % 7}")
            if number % 100 == 0:
                await asyncio.sleep(0.05)


async def full(folder: str) -> None:
    """Fill the disk while requests are counted, free it, and print what the database has."""
    value = f"{folder}/usage.sqlite3"
    ledger = opened(value)
    async with running(ledger):
        count(ledger, "before")
        await until(lambda: numbers(value)[0] == 1)
        filler = fill(Path(folder))
        for number in range(2000):  # rows enough to need pages that are not there
            count(ledger, f"key-{number}")
        await until(lambda: "writing fails" in errors())
        print(json.dumps({"log": errors()}))  # noqa: T201
        count(ledger, "meanwhile")
        filler.unlink()
        await until(lambda: numbers(value)[0] == 2002)
    print(json.dumps({"sums": numbers(value), "log": errors()}))  # noqa: T201


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return path


def errors() -> str:
    return Path(os.environ["LOG_FILE"]).read_text()


if __name__ == "__main__":
    if "LOG_FILE" in os.environ:
        logging.basicConfig(filename=os.environ["LOG_FILE"], format="%(message)s")
    name, *arguments = sys.argv[1:]
    asyncio.run({"endless": endless, "some": some, "full": full}[name](*arguments))
