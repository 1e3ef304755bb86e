"""What tests ask of a ledger: its sums, and a run of it in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.ledger.engine import reader
from gateway.ledger.ledger import Ledger
from gateway.ledger.report import Filters, Line, read, total
from gateway.ledger.target import parse

CHAT = "/v1/chat/completions"


def sums(value: str) -> Line:
    """Everything that a database holds, added up. `value`: as of GATEWAY_USAGE_DB."""
    target = parse(value)
    assert target is not None
    engine = reader(target)
    try:
        with engine.connect() as connection:
            return total(read(connection, "key", Filters()).values())
    finally:
        engine.dispose()


def numbers(value: str) -> tuple[int, int, int]:
    """Requests, prompt and completion tokens."""
    found = sums(value)
    return found.requests, found.prompt_tokens, found.completion_tokens


def count(ledger: Ledger, key: str = "a") -> None:
    """One request of 3 prompt and 5 completion tokens."""
    ledger.add(key, "m", CHAT, "ok", 3, 5, False)


@asynccontextmanager
async def running(ledger: Ledger) -> AsyncIterator[None]:
    """The ledger as the gateway runs it; closed when the block is left."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ledger.run())
        yield
        task.cancel()
    await ledger.close()


async def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Poll until true. The question may be slow: it is asked in a thread."""
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - others change it
            await asyncio.sleep(0.02)
