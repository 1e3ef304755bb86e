"""What takes the lane is exactly one chunk of its own size; every other length is looked at."""

from __future__ import annotations

import pytest

from gateway.lane import Lane, start_of


@pytest.mark.parametrize("content", [8, 15, 16, 17, 254, 255, 256, 257, 4095, 4096, 65_535, 65_536])
def test_each_size_begins_as_the_engine_writes_it(content: int) -> None:
    event = b"data: ".ljust(content - 2, b"x") + b"\n\n"
    chunk = b"%x\r\n%b\r\n" % (content, event)
    assert chunk.startswith(start_of(len(chunk)))


@pytest.mark.parametrize(("said", "content"), [(15, 16), (255, 256), (4095, 4096)])
def test_a_size_that_is_not_true_is_not_passed_on(said: int, content: int) -> None:
    written: list[bytes] = []
    refused: list[bytes] = []
    lane = Lane(written.append, usage_asked=False)
    lane.otherwise = refused.append
    data = b"%x\r\n%b\n\n\r\n" % (said, b"data: ".ljust(content - 2, b"x"))
    lane.carry(data)
    assert (written, refused) == ([], [data])
