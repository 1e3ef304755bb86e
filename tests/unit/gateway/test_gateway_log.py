"""The request log: lines of one turn leave together, and a failing write loses only its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os

from typing_extensions import Buffer

from gateway.log import FLUSH_S, Record, RequestLog


class Flaky(io.BytesIO):
    """A log driver that fails once, as a full disk or a closed pipe does."""

    writes = 0

    def write(self, text: Buffer) -> int:
        self.writes += 1
        if self.writes == 1:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_after_a_failing_write_are_written_once() -> None:
    stream = Flaky()

    async def write_three() -> None:
        log = RequestLog(stream)
        for name in ("lost", "second", "third"):
            log.write(Record(name, "POST"), 0.0)
            log.flush()

    asyncio.run(write_three())
    ids = [json.loads(line)["request_id"] for line in stream.getvalue().splitlines()]
    assert ids == ["second", "third"]


def test_a_reader_that_is_gone_costs_nothing_but_lines() -> None:
    faults: list[object] = []

    async def write_many() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        log = RequestLog(stream)
        for _ in range(100):
            log.write(Record("x", "POST"), 0.0)
            log.flush()

    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(write_end, "wb")
    try:
        asyncio.run(write_many())
    finally:
        with contextlib.suppress(BrokenPipeError):
            stream.close()
    assert faults == []


def test_lines_leave_together() -> None:
    stream = Flaky()
    stream.writes = 1

    async def write_two() -> None:
        log = RequestLog(stream)
        log.write(Record("a", "POST"), 0.0)
        log.write(Record("b", "POST"), 0.0)
        await asyncio.sleep(2 * FLUSH_S)

    asyncio.run(write_two())
    assert (stream.writes, stream.getvalue().count(b"\n")) == (2, 2)
