"""Server-sent events as bytes: where an event ends, which one to withhold, what the last ones are.

Pure: no I/O, no JSON on the way through. A line ends with LF, CR or CRLF, in any mix, and a CRLF
may be cut between two pieces; an event ends with a blank line
(https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import re

from gateway.forms import json_object

# The last events of an answer: finish, usage and [DONE] take some 600 bytes. Of a longer finish
# event (a tool call, log probabilities) what matters is found as it passes.
TAIL = 4096

# A CR before a LF is no line end of its own, or one CRLF would be two.
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*([^\s\]])')
# No usage chunk is as long as this: an endless line is not held back.
_MAX_HELD = 65_536


class Frames:
    """Counts events and knows whether one is open. `count`: blocks closed by a blank line."""

    __slots__ = ("_after_cr", "_line_open", "count", "open")

    def __init__(self) -> None:
        self.count = 0
        self.open = False  # bytes since the last blank line
        self._line_open = False  # bytes since the last line ending
        self._after_cr = False  # the last byte was CR: a LF next belongs to it

    @property
    def at_boundary(self) -> bool:
        """Nothing is open, and no LF may still belong to a CR."""
        return not self.open and not self._after_cr

    def feed(self, piece: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        if is_one_event(piece) and not self.open:
            self.count += 1
            self._after_cr = False
        else:
            self._walk(piece)

    def _walk(self, piece: bytes) -> None:
        """Any bytes: endings become LF, then line by line."""
        if self._after_cr and piece[:1] == b"\n":
            piece = piece[1:]
            self._after_cr = False
        if not piece:
            return
        self._after_cr = piece[-1] == 13
        first, *rest = _lines(piece)
        self._text(first)
        for line in rest:
            self._end_line()
            self._text(line)

    def _text(self, text: bytes) -> None:
        if text:
            self.open = self._line_open = True

    def _end_line(self) -> None:
        if self._line_open:
            self._line_open = False
        elif self.open:
            self.open = False
            self.count += 1


def is_one_event(piece: bytes) -> bool:
    """True for one whole event with LF endings, which is how vLLM's pieces come."""
    return piece.find(b"\n\n") == len(piece) - 2 > 0 and b"\r" not in piece


class UsageHeld:
    """Lets a stream through except for the usage chunk that the client did not ask for.

    An event is held only as long as it may still be that chunk: until its first choice begins.
    """

    __slots__ = ("_held", "_passing")

    def __init__(self) -> None:
        self._held = b""
        self._passing = False  # inside an event that is not a usage chunk

    def feed(self, piece: bytes) -> bytes:
        """What may go out now."""
        data = self._held + piece
        out = []
        start = 0
        while (end := _end_of_event(data, start)) is not None:
            event = data[start:end]
            if self._passing or not is_usage_chunk(event):
                out.append(event)
            self._passing = False
            start = end
        passed, self._held = self._cut(data[start:])
        return b"".join([*out, passed])

    @property
    def idle(self) -> bool:
        """At the beginning of an event."""
        return not self._held and not self._passing

    def rest(self) -> bytes:
        """What is still held at the end of the stream, and is no usage chunk."""
        held, self._held = self._held, b""
        return b"" if is_usage_chunk(held) else held

    def _cut(self, rest: bytes) -> tuple[bytes, bytes]:
        """An event that is not whole yet: what may pass, and what has to wait."""
        if not self._passing and len(rest) < _MAX_HELD and not _CHOICES.search(rest):
            return b"", rest
        self._passing = True
        text = rest.rstrip(b"\r\n")  # line ends wait for what follows: they may end the event
        return text, rest[len(text) :]


def is_usage_chunk(event: bytes) -> bool:
    """True for a chunk that carries the usage and no choice (`choices` empty or absent)."""
    if b'"usage"' not in event:
        return False
    chunks = [json_object(data) for data in data_fields(event)]
    return bool(chunks) and all(
        isinstance(chunk.get("usage"), dict) and not chunk.get("choices") for chunk in chunks
    )


def data_fields(events: bytes) -> list[bytes]:
    """Values of the data lines in order. The first may be a fragment; it then parses as nothing."""
    fields = [line[5:] for line in _lines(events) if line.startswith(b"data:")]
    return [field.removeprefix(b" ") for field in fields]


def _lines(data: bytes) -> list[bytes]:
    """What stands between the line ends, of whichever kind; the last one is not ended."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _end_of_event(data: bytes, start: int) -> int | None:
    """Where the first event ends. A CR at the very end is undecided: a LF may belong to it."""
    found = _BLANK_LINE.search(data, start)
    if found is None or (found.end() == len(data) and data.endswith(b"\r")):
        return None
    return found.end()
