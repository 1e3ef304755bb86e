"""An event stream on its way: followed piece by piece, judged at its end, by the API it speaks.

API         complete after                                         an error is
chat        [DONE], or a finish_reason in each choice              data: {"error": …}
responses   response.completed | response.incomplete               error | response.failed
messages    message_stop                                           event: error
"""

from __future__ import annotations

import re
from typing import Literal

from gateway.forms import Ending, json_object
from gateway.lane import Lane
from gateway.sse import TAIL, Frames, UsageHeld, data_fields
from gateway.usage import Usage, UsageFinder, usage_in

Verdict = Literal["ok", "error", "truncated"]

# A line that names its event. Found as it passes: response.completed repeats the whole answer and
# may be longer than the tail.
_NAMED = re.compile(rb"(?:^|[\r\n])event: ?([a-z_.]+)")
# Without such a line: the type in the data, where vLLM writes it last.
_TYPE_LAST = re.compile(rb'"type": ?"([a-z_.]+)"\}\s*$')
# Inside a JSON string the quotes would be escaped.
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"')
# Events before the first token's.
_OPENING = {"chat": 0, "plain": 0, "responses": 4, "messages": 2}
# message_start, which has the prompt's tokens, comes first.
_HEAD = 2048
_TRIM_AT = 2 * TAIL
# Longer than the longest event name with its field name.
_CARRY = 64


class Stream:
    """One answer. Memory: at most 2 x TAIL, what is held back, and one piece.

    `withhold`: the usage chunk is not for the client.
    """

    __slots__ = (
        "_ending",
        "_finder",
        "_finished",
        "_head",
        "_held",
        "_name",
        "_named",
        "_opening",
        "carried",
        "frames",
        "lane",
        "steady",
        "tail",
    )

    def __init__(self, ending: Ending, withhold: bool) -> None:
        self._ending = ending
        self._named = ending in {"responses", "messages"}
        self._held = UsageHeld() if withhold else None
        self.tail = bytearray()
        self._head = b""
        self._name = b""
        self._finder = UsageFinder()
        self.steady = False  # between two events, with nothing unusual so far
        self._finished = False  # a finish_reason was in what the tail has lost
        self._opening: int | None = None
        self.frames = Frames()
        self.lane: Lane | None = None
        self.carried = 0  # bytes that took the fast path

    def feed(self, piece: bytes) -> bytes:
        """Take the next bytes; returns those that may go to the client now."""
        self.settle()
        if self._opening is None:
            self._opening = _OPENING[self._ending] + (b'"role"' in piece)
        if self._named:
            self._follow(piece)
        self.tail += piece
        if len(self.tail) > _TRIM_AT:
            self._trim()
        self.frames.feed(piece)
        passed = piece if self._held is None else self._held.feed(piece)
        self.steady = not self._named and self.between_events
        return passed

    @property
    def between_events(self) -> bool:
        """The client has whole events and nothing else; a line end may no longer follow."""
        return self.frames.at_boundary and (self._held is None or self._held.idle)

    def settle(self) -> None:
        """Add what took the fast path meanwhile."""
        lane = self.lane
        if lane is not None and lane.events:
            self.frames.count += lane.events
            self.carried += lane.bytes
            self.tail += lane.before + lane.last
            lane.events = lane.bytes = 0
            lane.before = lane.last = b""

    def rest(self) -> bytes:
        """What was held back and is no usage chunk, once no more bytes come."""
        return b"" if self._held is None else self._held.rest()

    def verdict(self) -> Verdict:
        """How the stream ended, once no more bytes come."""
        self.settle()
        tail = bytes(self.tail)
        if not self._named:
            return judge_chat(tail, self._finished)
        half = self.frames.open and not tail.rstrip().endswith(b"}")
        return "truncated" if half else judge_named(self._name, tail)

    def usage(self) -> Usage | None:
        """Tokens by the engine's own count, None while it has not come."""
        if not self._named:
            return usage_in(bytes(self.tail))
        found = self._finder.usage()
        return found.over(usage_in(self._head)) if found is not None else None

    def tokens_seen(self) -> int:
        """One for each event that carries text: an estimate when nobody counted."""
        return max(0, self.frames.count - (self._opening or 0))

    def _trim(self) -> None:
        """Forget what the end of the stream cannot need."""
        lost = len(self.tail) - TAIL
        self._finished = self._finished or _FINISH.search(self.tail, 0, lost) is not None
        del self.tail[:lost]

    def _follow(self, piece: bytes) -> None:
        """Note the last event's name, the stream's beginning, and the usage, wherever it comes."""
        if len(self._head) < _HEAD:
            self._head += piece[:_HEAD]
        self._finder.feed(piece)
        for found in _NAMED.finditer(bytes(self.tail[-_CARRY:]) + piece):
            self._name = found.group(1)


def judge_chat(tail: bytes, finished: bool = False) -> Verdict:
    """`ok`: [DONE], or the last event with choices has a finish_reason in each of them; of an event
    longer than the tail: in it at all (`finished`: before the tail).
    `error`: the last event before such an ending is an error object. Else `truncated`.
    """
    done = False
    for data in reversed(data_fields(tail)):
        if data == b"[DONE]":
            done = True
            continue
        event = json_object(data)
        if "error" in event:
            return "error"
        if event.get("choices"):
            return "ok" if done or _finished(event["choices"]) else "truncated"
    longer = len(tail) >= TAIL and (finished or _FINISH.search(tail) is not None)
    return "ok" if done or longer else "truncated"


def judge_named(last: bytes, tail: bytes) -> Verdict:
    """By the name of the last event, or its type where no event has a name. `ok`: it ends an
    answer; `error`: it says that the answer failed. Else `truncated`.
    """
    fields = data_fields(tail)
    kind = last.decode() or json_object(fields[-1] if fields else b"").get("type")
    if kind is None and (found := _TYPE_LAST.search(tail)):
        kind = found.group(1).decode()
    return _LAST.get(str(kind), "truncated")


_LAST: dict[str, Verdict] = {
    "response.completed": "ok",
    "response.incomplete": "ok",
    "response.failed": "error",
    "message_stop": "ok",
    "error": "error",
}


def _finished(choices: object) -> bool:
    return isinstance(choices, list) and all(
        isinstance(choice, dict) and choice.get("finish_reason") for choice in choices
    )
