"""Random exchanges for `tests/fault`: what the engine sends and how, how the client behaves, and
what must come of it. Pure: no socket here.

    Schedule ─▶ script()   steps of the scripted engine
             ─▶ request()  bytes of the client
             ─▶ judge(result, line)  raises AssertionError when the answer or its log line is wrong
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from common.crowd import Manner, Result
from common.events import parse
from common.rawhttp import build
from common.script import (
    DONE,
    JSON,
    SSE,
    Fin,
    Pause,
    Reset,
    Script,
    Send,
    Step,
    chunk,
    completion,
    delta_event,
    finish_event,
    head,
)
from common.servers import AUTH, CHAT

USAGE = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5}}\n\n'
OTHER_USAGE = USAGE.replace(b"\n", b"\r\n").replace(b"data: ", b"id: 7\r\ndata:")
BOOM = b'data: {"error":{"message":"boom","type":"x","param":null,"code":500}}\n\n'
EVENTS = [
    delta_event("", role="assistant"),
    delta_event("x"),
    delta_event("北京🦊é"),
    delta_event("data: [DONE]\n"),
    delta_event('{"error": {"message": "no"}}'),
    delta_event("", reasoning="hm", x_future={"a": [1]}),
    delta_event("a\r\nb").replace(b"\n\n", b"\r\n\r\n"),
    delta_event("y" * 3000),
    b": up\n\n",
    b"retry: 3000\r\r",
    b"event: ping\ndata: {}\n\n",
]
ENDS = [
    finish_event() + DONE,
    finish_event("length") + b"data:[DONE]\r\n\r\n",
    finish_event(),
    finish_event() + b"data: [DONE]",
    finish_event() + USAGE + DONE,
    finish_event() + OTHER_USAGE + DONE,
    DONE,
    b"",
    USAGE,
    OTHER_USAGE,
    BOOM,
    BOOM + DONE,
]
OURS = re.compile(rb'data: (\{"error": \{"message": "The engine [^\n]*\})\n\n\Z')
REFUSAL = json.dumps({"error": {"message": "no", "type": "x", "param": None, "code": 1}}).encode()


@dataclass(frozen=True)
class Schedule:
    """One exchange. Cuts in thousandths of what they cut, pauses in milliseconds."""

    kind: str  # stream, plain or refusal
    body: bytes
    asks_usage: bool
    framing: str  # chunked, length or close
    chunk_cuts: tuple[int, ...]
    segment_cuts: tuple[int, ...]
    pauses: tuple[int, ...]
    ending: str  # proper, fin, reset, garbage or nothing
    stop: int  # where on the wire a bad ending comes
    manner: Manner

    # what the engine does

    def script(self) -> Script:
        if self.ending == "nothing":
            return (Pause(self._pause(0)), Fin())
        wire = self.wire()
        steps: list[Step] = [Send(self._head())]
        for number, part in enumerate(cut(wire, self.segment_cuts)):
            steps += [Send(part), Pause(self._pause(number))]
        if self.ending == "reset":
            steps.append(Reset())
        elif self.ending != "proper" or self.framing == "close":
            steps.append(Fin())
        return tuple(steps)

    def wire(self) -> bytes:
        """The framed body, as far as the engine sends it."""
        if self.framing == "chunked":
            parts = [chunk(part) for part in cut(self.body, self.chunk_cuts)]
            if self.ending == "garbage":
                return b"".join(parts[: max(1, len(parts) * self.stop // 1000)]) + b"zzz\r\n"
            wire = b"".join(parts) + chunk(b"")
        else:
            wire = self.body
        return wire if self.ending == "proper" else wire[: len(wire) * self.stop // 1000]

    def _head(self) -> bytes:
        fields = [("content-type", SSE if self.kind == "stream" else JSON)]
        if self.framing == "chunked":
            fields.append(("transfer-encoding", "chunked"))
        elif self.framing == "length":
            fields.append(("content-length", str(len(self.body))))
        return head(429 if self.kind == "refusal" else 200, fields)

    def _pause(self, number: int) -> float:
        return self.pauses[number % len(self.pauses)] / 1000

    # what the client does

    def request(self, request_id: str) -> bytes:
        wanted: dict[str, object] = {"stream": self.kind != "plain", "messages": []}
        if self.kind != "plain" and self.asks_usage:
            wanted["stream_options"] = {"include_usage": True}
        headers = {**AUTH, "x-request-id": request_id, "connection": "close"}
        return build("POST", CHAT, headers, wanted)

    # what must come of it

    def sent(self) -> bytes:
        """Body bytes that left the engine, without framing; a whole chunk or a part of one."""
        wire = self.wire()
        return unchunked(wire) if self.framing == "chunked" else wire

    @property
    def complete(self) -> bool:
        """The framing ends as it should."""
        if self.ending in {"garbage", "nothing"} or (self.framing, self.ending) == (
            "close",
            "reset",
        ):
            return False
        whole = self.framing == "close" or len(self.wire()) == len(self._framed())
        return whole and self.ending != "reset"

    def _framed(self) -> bytes:
        if self.framing != "chunked":
            return self.body
        return b"".join(chunk(part) for part in cut(self.body, self.chunk_cuts)) + chunk(b"")

    def judge(self, result: Result, line: dict[str, Any] | None) -> None:
        if self.manner.send_only is not None:
            assert line is None or line["outcome"] == "client_left", line
            return
        assert line is not None, "no log line"
        if result.left:
            self._judge_left(result, line)
        elif self.ending == "nothing":
            self._judge_failed(result, line)
        elif self.kind == "stream":
            self._judge_stream(result, line)
        elif self.kind == "refusal":
            self._judge_refusal(result, line)
        else:
            self._judge_plain(result, line)

    def _judge_left(self, result: Result, line: dict[str, Any]) -> None:
        """It may have been quick enough for any other ending."""
        assert line["outcome"] in {"client_left", "ok", "truncated", "upstream_error"}, line
        if result.status == 200:
            apart(bytes(result.body), self.shown(self.sent()))

    def _judge_failed(self, result: Result, line: dict[str, Any]) -> None:
        assert (result.status, result.whole) == (502, True), result
        assert json.loads(result.body)["error"]["code"] == "upstream_error"
        assert (line["outcome"], line["status"]) == ("upstream_error", 502), line

    def _judge_stream(self, result: Result, line: dict[str, Any]) -> None:
        assert (result.status, result.whole) == (200, True), result
        shown = self.shown(self.sent())
        came, error = apart(bytes(result.body), shown)
        if self.ending != "reset":  # a reset may overtake bytes
            assert came == shown, (came, shown)
        verdict = ending_of(came)
        assert line["outcome"] == verdict, (line, verdict)
        assert (error is not None) == (verdict == "truncated"), result
        assert error in {None, "upstream_error"}, result

    def shown(self, sent: bytes) -> bytes:
        """What of it a client may see: all, or all but usage that it did not ask for."""
        return sent if self.asks_usage else sent.replace(USAGE, b"").replace(OTHER_USAGE, b"")

    def _judge_refusal(self, result: Result, line: dict[str, Any]) -> None:
        """Its status stays whatever becomes of its body; a body that is whole stays as it is."""
        if self.ending == "reset" and result.status == 502:
            return  # it overtook the head
        assert (result.status, result.whole) == (429, True), result
        if self.complete and self.sent() == self.body:
            assert bytes(result.body) == self.body
        assert "message" in json.loads(result.body)["error"]
        assert line["outcome"] == "upstream_error", line

    def _judge_plain(self, result: Result, line: dict[str, Any]) -> None:
        """Whole, or seen as cut, or an error when nothing of it came."""
        sent, body = self.sent(), bytes(result.body)
        if result.status == 502:
            assert not sent or self.ending == "reset", result
            assert line["outcome"] == "upstream_error", line
            return
        assert result.status == 200, result
        assert sent.startswith(body)
        # A reset right behind the last byte may overtake it, or come too late to matter.
        if not (self.ending == "reset" and self.framing != "close" and sent == self.body):
            assert result.whole == self.complete, (result, self)
        assert line["outcome"] == ("ok" if result.whole else "truncated"), line
        if result.whole:
            assert body == sent


def cut(data: bytes, cuts: tuple[int, ...]) -> list[bytes]:
    """`data` in pieces, none empty."""
    edges = sorted({0, len(data), *(len(data) * at // 1000 for at in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def apart(body: bytes, shown: bytes) -> tuple[bytes, str | None]:
    """Those of the `shown` bytes that came, and the code of our error event behind them. A blank
    line of ours is between the two exactly when they end inside an event.
    """
    ours = OURS.search(body)
    before = body[: ours.start()] if ours else body
    came = before if shown.startswith(before) else before.removesuffix(b"\n\n")
    assert shown.startswith(came), (came, shown)
    assert ours is None or at_boundary(came) == (came == before), body
    return came, json.loads(ours[1])["error"]["code"] if ours else None


def unchunked(wire: bytes) -> bytes:
    """Data of the chunks in `wire`, which may end, or break, anywhere."""
    found = b""
    while b"\r\n" in wire:
        line, _, wire = wire.partition(b"\r\n")
        if not line or line == b"zzz":
            break
        size = int(line, 16)
        found += wire[:size]
        wire = wire[size + 2 :]
    return found


def at_boundary(data: bytes) -> bool:
    """True when `data` ends with a blank line, or has nothing but blank lines."""
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return text.endswith(b"\n\n") or not text.strip(b"\n")


def ending_of(data: bytes) -> str:
    """The outcome of a stream of these bytes, by its last event that says anything."""
    last: Any = {}
    done = False
    for event in parse(data.decode("utf-8", "ignore").encode() + b"\n\n"):
        try:
            value = json.loads(event.data)
        except ValueError:
            done = done or event.data == "[DONE]"
            continue
        if "error" in value or value.get("choices"):
            last = value
    if "error" in last:
        return "upstream_error"
    finished = any(choice.get("finish_reason") for choice in last.get("choices", []))
    return "ok" if done or finished else "truncated"


# strategies

THOUSANDTHS = st.integers(0, 1000)
LEAVERS = st.builds(
    Manner,
    leave_after_s=st.sampled_from([0.0, 0.0005, 0.001, 0.002, 0.005, 0.01]),
    how=st.sampled_from(["close", "reset", "half-close"]),
)
GRABBERS = st.builds(
    Manner,
    leave_after_bytes=st.sampled_from([1, 200, 600, 1500, 4000]),
    how=st.sampled_from(["close", "reset", "half-close"]),
)
SLOW = st.builds(Manner, receive_buffer=st.sampled_from([1, 4096]), pause_s=st.just(0.0005))
HALF_SENT = st.builds(
    Manner,
    send_only=st.integers(1, 150),
    leave_after_s=st.just(0.001),
    how=st.sampled_from(["close", "reset"]),
)
READERS = st.just(Manner())
MANNERS = st.one_of(READERS, READERS, READERS, LEAVERS, GRABBERS, SLOW, HALF_SENT)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    kind = draw(st.sampled_from(["stream", "stream", "stream", "plain", "refusal"]))
    manner = draw(MANNERS)
    if kind == "stream":
        events = draw(st.lists(st.sampled_from(EVENTS), max_size=6))
        end = draw(st.sampled_from(ENDS))
        body = (
            b"".join(events) * draw(st.sampled_from([1, 1, 1, 30] if manner.pause_s else [1])) + end
        )
    else:
        body = REFUSAL if kind == "refusal" else json.dumps(completion("é" * 400)).encode()
    framing = draw(st.sampled_from(["chunked", "chunked", "length", "close"]))
    endings = ["proper", "proper", "fin", "reset", "nothing"]
    return Schedule(
        kind=kind,
        body=body,
        asks_usage=draw(st.booleans()),
        framing=framing,
        chunk_cuts=tuple(draw(st.lists(THOUSANDTHS, max_size=6))),
        segment_cuts=tuple(draw(st.lists(THOUSANDTHS, max_size=6))),
        pauses=tuple(draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), min_size=1, max_size=3))),
        ending=draw(st.sampled_from([*endings, "garbage"] if framing == "chunked" else endings)),
        stop=draw(THOUSANDTHS),
        manner=manner,
    )
