"""Server-sent events as bytes: where a frame ends, how a stream ended.

Pure: no I/O, no JSON on the way through. A line ends with LF, CR or CRLF, in any mix, and a CRLF
may be cut between two pieces; a frame ends with a blank line
(https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import json
import re
from typing import Literal

from gateway.forms import Ending

Verdict = Literal["ok", "error", "truncated"]

# The last events of an answer: finish, usage and [DONE] take some 600 bytes; a finish event that
# carries a long tool call or log probabilities may take kilobytes.
TAIL = 16_384


# The last event of /v1/responses and of /v1/messages.
_TERMINAL: dict[str, Verdict] = {
    "response.completed": "ok",
    "response.incomplete": "ok",
    "response.failed": "error",
    "message_stop": "ok",
    "error": "error",
}
_TYPE_LAST = re.compile(rb'"type": ?"([a-z_.]+)"\}\s*$')


class Tracker:
    """Follows a stream piece by piece: counts frames, knows the boundary, keeps the tail.

    Memory: TAIL to 2 x TAIL plus one piece, whatever the length of a line.
    """

    __slots__ = ("_after_cr", "_ending", "_line_open", "_open", "_tail", "frames")

    def __init__(self, ending: Ending = "chat") -> None:
        self._ending = ending
        self.frames = 0  # blocks closed by a blank line, comment blocks included
        self._tail = bytearray()
        self._open = False  # bytes since the last blank line
        self._line_open = False  # bytes since the last line ending
        self._after_cr = False  # the last byte was CR: a LF next belongs to it

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the stream, cut anywhere."""
        tail = self._tail
        tail += piece
        if len(tail) > 2 * TAIL:
            del tail[:-TAIL]
        # The common case: whole events with LF endings, as vLLM writes them.
        plain = not self._open and piece[-2:] == b"\n\n" and piece[0] != 10
        if plain and b"\r" not in piece and b"\n\n\n" not in piece:
            self.frames += piece.count(b"\n\n")
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
        first, *rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._text(first)
        for line in rest:
            self._end_line()
            self._text(line)

    def _text(self, text: bytes) -> None:
        if text:
            self._open = self._line_open = True

    def _end_line(self) -> None:
        if self._line_open:
            self._line_open = False
        elif self._open:
            self._open = False
            self.frames += 1

    @property
    def mid_event(self) -> bool:
        """True when the last frame has begun and is not closed by a blank line."""
        return self._open

    def verdict(self) -> Verdict:
        """How the stream ended, judged by its last events once no more bytes come."""
        tail = bytes(self._tail)
        return judge_typed(tail) if self._ending in {"responses", "messages"} else judge(tail)


def judge_typed(tail: bytes) -> Verdict:
    """By the `type` of the last event. `ok`: it is one that ends an answer; `error`: one that says
    it failed. Else `truncated`. response.completed repeats the whole answer and may be longer than
    the tail; vLLM writes its type last.
    """
    lines = _lines(tail)
    last = next((line for line in reversed(lines) if line.startswith(b"data:")), b"")
    kind = _parse(last[5:]).get("type")
    if kind is None and (found := _TYPE_LAST.search(tail)):
        kind = found.group(1).decode()
    return _TERMINAL.get(str(kind), "truncated")


def judge(tail: bytes) -> Verdict:
    """`ok`: [DONE], or the last event with choices has a finish_reason in each of them.
    `error`: the last event before such an ending is an error object. Else `truncated`.
    """
    done = False
    for data in reversed(_data_fields(tail)):
        if data == b"[DONE]":
            done = True
            continue
        event = _parse(data)
        if "error" in event:
            return "error"
        if event.get("choices"):
            return "ok" if done or _finished(event["choices"]) else "truncated"
    return "ok" if done else "truncated"


def _data_fields(tail: bytes) -> list[bytes]:
    """Values of the data lines in order. The first may be a fragment; it then parses as nothing."""
    fields = [line[5:] for line in _lines(tail) if line.startswith(b"data:")]
    return [field.removeprefix(b" ") for field in fields]


def _lines(tail: bytes) -> list[bytes]:
    return tail.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _parse(data: bytes) -> dict[str, object]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _finished(choices: object) -> bool:
    return isinstance(choices, list) and all(
        isinstance(choice, dict) and choice.get("finish_reason") for choice in choices
    )
