"""Lines that several processes write to one pipe or file, and that never mix.

A write of at most PIPE_BUF bytes to a pipe is not torn apart. So whole lines are put together up
to that size, and a line that is longer, which only a long trace is, is made to fit.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from select import PIPE_BUF
from typing import Final

CUT: Final = 1000  # characters of a message that are kept when its line is too long


class WholeLines(io.RawIOBase):
    """Takes whole lines, any number at a time, and writes them to `fd`, which stays open."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        for piece in pieces(data):
            os.write(self._fd, piece)
        return len(data)


def whole_lines(fd: int) -> io.TextIOWrapper:
    """For text; each `write` has whole lines."""
    raw: io.RawIOBase = WholeLines(fd)
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=True)  # type: ignore[arg-type]


def pieces(data: bytes) -> Iterator[bytes]:
    """The lines in writes of at most PIPE_BUF bytes. Pure."""
    if len(data) <= PIPE_BUF:
        yield data
        return
    piece = b""
    for line in data.splitlines(keepends=True):
        whole = line if len(line) <= PIPE_BUF else shorter(line)
        if len(piece) + len(whole) > PIPE_BUF:
            yield piece
            piece = b""
        piece += whole
    yield piece


def shorter(line: bytes) -> bytes:
    """A long JSON line without the outer part of its trace, its message cut. Pure."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line[: PIPE_BUF - 1] + b"\n"
    fields["message"] = str(fields.get("message", ""))[:CUT]
    trace = list(fields.get("trace", []))
    while trace and len(json.dumps(fields)) >= PIPE_BUF:
        trace = fields["trace"] = trace[1:]
    return json.dumps(fields).encode()[: PIPE_BUF - 1] + b"\n"
