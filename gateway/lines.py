"""Lines that several processes write to one pipe or file, and that never mix nor hold anyone up.

A write of at most PIPE_BUF bytes to a pipe is not torn apart. So whole lines are put together up
to that size, and a line that is longer, which only a long trace is, is made to fit.

    write ─▶ the pipe takes it ─▶ written at once
               │ it is full: its reader is slow, or stopped
               ▼
             kept, up to MAX_KEPT ─▶ a thread writes it when there is room
               │ more than that
               ▼
             lost, and their number is written in the end
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from select import PIPE_BUF, POLLOUT, poll
from typing import Final

CUT: Final = 1000  # characters of a message that are kept when its line is too long
MAX_KEPT: Final = 4 << 20  # bytes: some ten thousand requests
# At exit a reader that is only slow gets the rest.
LAST_S: Final = 1.0


class WholeLines(io.RawIOBase):
    """Takes whole lines, any number at a time, and writes them to `fd`, which stays open. Does not
    wait for who reads them. Raises OSError when nobody does.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._room = _poll(fd)
        self._lock = threading.Lock()
        self._kept: deque[bytes] = deque()
        self._held = 0  # bytes kept
        self._lost = 0  # lines
        self._writer: threading.Thread | None = None
        self._writing = False  # the oldest piece is being written
        atexit.register(self._end)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        with self._lock:
            for piece in pieces(data):
                if self._kept or not self._room.poll(0):
                    self._keep(piece)
                else:
                    os.write(self._fd, piece)
        return len(data)

    def _keep(self, piece: bytes) -> None:
        if self._held + len(piece) > MAX_KEPT:
            self._lost += piece.count(b"\n")
            return
        self._kept.append(piece)
        self._held += len(piece)
        if self._writer is None:
            self._writer = threading.Thread(target=self._catch_up, daemon=True)
            self._writer.start()

    def _catch_up(self) -> None:
        """In a thread: write what is kept, each piece when there is room for it."""
        room = _poll(self._fd)
        while (piece := self._next()) is not None:
            room.poll()
            with contextlib.suppress(OSError):  # nobody reads any more
                os.write(self._fd, piece)

    def _next(self) -> bytes | None:
        """The oldest piece, which stays until the next call, so that no line passes it by."""
        with self._lock:
            if self._writing:
                self._held -= len(self._kept.popleft())
            self._writing = bool(self._kept)
            if self._kept:
                return self._kept[0]
            if self._lost:
                self._kept.append(lost(self._lost))
                self._held, self._lost, self._writing = len(self._kept[0]), 0, True
                return self._kept[0]
            self._writer = None
            return None

    def _end(self) -> None:
        writer = self._writer
        if writer is not None:
            writer.join(LAST_S)


def whole_lines(fd: int) -> io.TextIOWrapper:
    """For text; each `write` has whole lines."""
    raw: io.RawIOBase = WholeLines(fd)
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=True)  # type: ignore[arg-type]


def lost(lines: int) -> bytes:
    """The line that says so."""
    told = f"{lines} log lines were lost: what reads them was too slow, or stopped"
    fields = {"ts": round(time.time(), 3), "level": "warning", "event": "gateway", "message": told}
    return json.dumps(fields).encode() + b"\n"


def _poll(fd: int) -> poll:
    found = poll()
    found.register(fd, POLLOUT)
    return found


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
