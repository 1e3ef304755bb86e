"""Lines of several writers on one pipe: whole, in order, in writes that a pipe does not tear."""

from __future__ import annotations

import json
import os
from select import PIPE_BUF

import pytest

from gateway.lines import pieces, whole_lines


def line(size: int, mark: str = "x") -> bytes:
    """A JSON line of that many bytes."""
    text = json.dumps({"message": mark})
    return json.dumps({"message": mark * (size - len(text))}).encode() + b"\n"


@pytest.mark.parametrize("sizes", [[100], [2000] * 7, [PIPE_BUF, 20, PIPE_BUF - 1], [30] * 1000])
def test_whole_lines_in_small_writes(sizes: list[int]) -> None:
    lines = [line(size) for size in sizes]
    found = list(pieces(b"".join(lines)))
    assert b"".join(found) == b"".join(lines)
    assert all(len(piece) <= PIPE_BUF and piece.endswith(b"\n") for piece in found)


def test_a_line_that_is_too_long_is_made_to_fit() -> None:
    trace = [f"file{number}.py:1 work" for number in range(500)]
    long = json.dumps({"event": "e", "message": "m" * 9000, "trace": trace}).encode() + b"\n"
    (first, second) = pieces(long + line(4000))
    fields = json.loads(first)
    assert len(first) <= PIPE_BUF
    assert (fields["event"], fields["trace"][-1]) == ("e", "file499.py:1 work")
    assert second == line(4000)


def test_what_is_no_json_is_cut() -> None:
    (piece,) = pieces(b"y" * 9000 + b"\n")
    assert (len(piece), piece[-1:]) == (PIPE_BUF, b"\n")


def test_text_and_bytes_leave_in_order() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read:
        stream = whole_lines(writer)
        stream.write("a\n")
        stream.buffer.write(b"b\n")
        stream.buffer.flush()
        stream.write("ü\n")
        stream.flush()
        os.close(writer)
        assert read.read() == "a\nb\nü\n".encode()
