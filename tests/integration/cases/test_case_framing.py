"""Events cut anywhere, ended in any legal way: bytes unchanged, counted and judged right.

B1, B3, B4, B5 (1), B13.
"""

from __future__ import annotations

import hashlib
import itertools
import json

import pytest
from common.row import WITH_USAGE, Door
from common.script import (
    DONE,
    Fin,
    Pause,
    Send,
    Step,
    chunk,
    delta_event,
    finish_event,
    head,
    sse_head,
)

END = finish_event() + DONE
EVENT = delta_event("北京🦊é")
ARGUMENTS = delta_event(
    "", tool_calls=[{"index": 0, "function": {"arguments": '{"city":"北京🦊é"}'}}]
)


def pieces(data: bytes, *cuts: int) -> list[bytes]:
    edges = [0, *cuts, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def in_chunks(parts: list[bytes], pause_s: float = 0.002) -> list[Step]:
    """Each part a chunk and a segment of its own."""
    steps: list[Step] = [Send(sse_head())]
    for part in parts:
        steps += [Send(chunk(part)), Pause(pause_s)]
    return [*steps, Send(chunk(b""))]


def until_close(parts: list[bytes]) -> list[Step]:
    """No framing at all: the end of the connection is the end of the body."""
    steps: list[Step] = [Send(head(200, [("content-type", "text/event-stream")]))]
    for part in parts:
        steps += [Send(part), Pause(0.002)]
    return [*steps, Fin()]


def same(door: Door, steps: list[Step], sent: bytes) -> None:
    """The body arrives as it was sent, whole, and the request counts as complete."""
    reply = door.ask(*steps)
    assert (reply.status, reply.whole) == (200, True)
    assert hashlib.sha256(reply.body).digest() == hashlib.sha256(sent).digest(), reply.body
    assert door.line(reply)["outcome"] == "ok"


def character_cuts(event: bytes) -> list[list[bytes]]:
    """After E5, after E5 8C, after F0 9F and inside the é."""
    at, fox = event.index("北".encode()), event.index("🦊".encode())
    cuts = (at + 1, at + 2, fox + 2, fox + 3, event.index("é".encode()) + 1)
    return [pieces(event + END, cut) for cut in cuts]


@pytest.mark.parametrize("event", [EVENT, ARGUMENTS], ids=["text", "tool arguments"])
@pytest.mark.parametrize("framing", [in_chunks, until_close])
def test_a_character_in_pieces(door: Door, event: bytes, framing: object) -> None:
    """B1: byte by byte, 2 ms apart, and cut inside each kind of character."""
    bytewise = [bytes([byte]) for byte in event + END]
    for parts in [bytewise, *character_cuts(event)]:
        same(door, framing(parts), event + END)  # type: ignore[operator]


def test_the_wire_cut_at_each_byte_of_the_framing(door: Door) -> None:
    """B1: the cut falls into a chunk's size, its CRLF, a character, the last chunk."""
    wire = chunk(EVENT[:61]) + chunk(EVENT[61:] + END) + chunk(b"")
    around = [*range(1, 8), *range(60, 76), *range(len(wire) - 10, len(wire))]
    for cut in around:
        parts = [Send(sse_head()), Send(wire[:cut]), Pause(0.002), Send(wire[cut:])]
        same(door, parts, EVENT + END)


def test_chunk_extensions_trailers_and_leading_zeros(door: Door) -> None:
    """Legal framing that is seldom seen."""
    wire = b"000%x;a=b\r\n%b\r\n0;c\r\nx-trailer: 1\r\n\r\n" % (len(EVENT + END), EVENT + END)
    same(door, [Send(sse_head() + wire)], EVENT + END)


CRLF = [b"data: {}\r\n\r\n", b"data: {}\r\n\r\n", b"data: [DONE]\r\n\r\n"]
BETWEEN = [b"data: {}\r", b"\n\r", b"\ndata: {}\r", b"\n\r", b"\ndata: [DONE]\r", b"\n\r", b"\n"]
ENDINGS = {
    "crlf": (CRLF, 3),
    "cut between CR and LF": (BETWEEN, 3),
    "two data lines": ([b"data: a\r\ndata: b\n\n", DONE], 2),
    "bare CR": ([b"data: {}\r\r", b"data: [DONE]\r\r"], 2),
    "bare CR cut": ([b"data: {}\r", b"\r", b"data: [DONE]\r", b"\r"], 2),
    "LF CR LF": ([b"data: {}\n\r\n", b"data: [DONE]\n\r\n"], 2),
    "CR LF LF": ([b"data: {}\r\n\n", b"data: [DONE]\r\n\n"], 2),
    "CR CRLF": ([b"data: {}\r\r\n", b"data: [DONE]\r\r\n"], 2),
    "many blank lines": ([b"\n\n\ndata: {}\n\n\n\n\r\n\r\n", DONE], 2),
    "two events in a piece": ([b"data: {}\n\ndata: {}\r\n\r\n" + DONE], 3),
    "byte order mark": ([b"\xef\xbb\xbfdata: {}\n\n", DONE], 2),
}


@pytest.mark.parametrize(("parts", "frames"), ENDINGS.values(), ids=list(ENDINGS))
def test_line_endings(door: Door, parts: list[bytes], frames: int) -> None:
    """B3: whatever ends a line, in any mix and cut anywhere."""
    reply = door.ask(*in_chunks(parts))
    assert reply.body == b"".join(parts)
    line = door.line(reply)
    assert (line["frames"], line["outcome"]) == (frames, "ok")


def test_an_event_of_two_data_lines_alone(door: Door) -> None:
    """B3 (3) as reported: one event, and no end in sight."""
    reply = door.ask(*in_chunks([b"data: a\r\ndata: b\n\n"]))
    assert reply.body.startswith(b"data: a\r\ndata: b\n\n")
    assert door.line(reply)["frames"] == 1


TERMINALS = {
    "no space": [b"data:[DONE]\n\n"],
    "crlf": [b"data: [DONE]\r\n\r\n"],
    "cr": [b"data: [DONE]\r\r"],
    "no newline": [b"data: [DONE]"],
    "one newline": [b"data: [DONE]\n"],
    "no space, no newline": [b"data:[DONE]"],
    "cut in the word": [b"data: [DO", b"NE]\n\n"],
    "cut in the name": [b"da", b"ta: [DONE]\n\n"],
    "cut in the blank line": [b"data: [DONE]\n", b"\n"],
    "bytewise": [bytes([byte]) for byte in b"data: [DONE]\r\n\r\n"],
    "a comment after it": [DONE, b": bye\n\n"],
    "a comment line in it": [b": bye\ndata: [DONE]\n\n"],
    "with an event name": [b"event: done\ndata: [DONE]\n\n"],
    "finish_reason alone": [finish_event()],
    "finish_reason length": [finish_event("length")],
    "finish_reason without a space": [finish_event("tool_calls").replace(b"data: ", b"data:")],
    "finish_reason and no newline": [finish_event().rstrip(b"\n")],
    "finish_reason with text": [
        delta_event("x").replace(b'"finish_reason": null', b'"finish_reason": "stop"')
    ],
    "finish_reason after 40 kB": [
        delta_event("x" * 40_000).replace(b'"finish_reason": null', b'"finish_reason": "stop"')
    ],
    "finish_reason before 40 kB": [
        delta_event("x" * 40_000)
        .replace(b'"index": 0', b'"index": 0, "finish_reason": "stop"')
        .replace(b', "finish_reason": null', b"")
    ],
    "finish, then usage": [finish_event(), b'data: {"choices":[],"usage":{"total_tokens":5}}\n\n'],
    "finish, then usage without choices": [finish_event(), b'data: {"usage":{}}\n\n', DONE],
}


@pytest.mark.parametrize("end", TERMINALS.values(), ids=list(TERMINALS))
@pytest.mark.parametrize("framing", [in_chunks, until_close])
def test_terminal_signals(door: Door, end: list[bytes], framing: object) -> None:
    """B4: complete, however it is spelt, cut and framed."""
    reply = door.ask(*framing([EVENT, *end]), body=WITH_USAGE)  # type: ignore[operator]
    assert (reply.body, reply.whole) == (EVENT + b"".join(end), True)
    assert door.line(reply)["outcome"] == "ok"


@pytest.mark.parametrize("ending", [[Fin()], [Send(chunk(b""))]], ids=["fin", "terminator"])
def test_done_without_newline_and_then_the_end(door: Door, ending: list[Step]) -> None:
    """B4: `data: [DONE]`, no newline, FIN; also where the chunked framing is not ended."""
    reply = door.ask(Send(sse_head()), Send(chunk(EVENT)), Send(chunk(b"data: [DONE]")), *ending)
    assert (reply.body, reply.whole) == (EVENT + b"data: [DONE]", True)
    assert door.line(reply)["outcome"] == "ok"


LOOKALIKES = [
    "data: [DONE]\n",
    "\n\ndata: [DONE]\n\n",
    "[DONE]",
    '"finish_reason": "stop"',
    '{"error": {"message": "no"}}',
    '"}]}\n\ndata: {"choices":[{"finish_reason":"stop"}]}',
]


@pytest.mark.parametrize("text", LOOKALIKES)
def test_text_that_looks_like_an_end_is_text(door: Door, text: str) -> None:
    """B4: the model may say anything; the stream goes on, and without an end it is cut off."""
    parts = [delta_event(text), delta_event("more"), END]
    same(door, in_chunks(parts), b"".join(parts))
    reply = door.ask(*in_chunks([delta_event("a"), delta_event(text)]))
    assert door.line(reply)["outcome"] == "truncated"


@pytest.mark.parametrize(
    "line",
    [b": data: [DONE]\n\n", b"xdata: [DONE]\n\n", b"data : [DONE]\n\n", b"id: [DONE]\n\n"],
)
def test_other_fields_are_no_end(door: Door, line: bytes) -> None:
    """B4: a comment or another field with the same words ends nothing."""
    reply = door.ask(*in_chunks([EVENT, line]))
    assert reply.body.startswith(EVENT + line)
    assert door.line(reply)["outcome"] == "truncated"


CONTROL = [
    b": up\n\n",
    b"retry: 3000\n\n",
    b": up\n",
    b"id: 7\n",
    b":\n\n",
    b": PROCESSING\r\n\r\n",
]


def test_comments_and_control_blocks(door: Door) -> None:
    """B5 (1): between events, around the first one and after the last, byte for byte."""
    between = [part for control in CONTROL for part in (control, EVENT)]
    for parts in ([*between, END], [*CONTROL, EVENT, END], [EVENT, END, b": bye\n\n"]):
        same(door, in_chunks(parts), b"".join(parts))


def test_unknown_fields_and_the_first_token(door: Door) -> None:
    """B13: nothing is dropped, and the first byte is counted whatever its delta holds."""
    firsts = [
        delta_event("", reasoning="think"),
        delta_event("", reasoning_content="think"),
        delta_event("", tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
        delta_event("", token_ids=[1, 2], stop_reason=None, x_future={"a": [1]}),
    ]
    for first in firsts:
        rest = chunk(delta_event("x")) + chunk(END) + chunk(b"")
        steps = [Send(sse_head()), Pause(0.1), Send(chunk(first)), Pause(0.2), Send(rest)]
        reply = door.ask(*steps)
        assert reply.body == first + delta_event("x") + END
        assert 80 < door.line(reply)["first_byte_ms"] < 280


def completion_event(text: str, finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
    event = {"id": "c", "object": "text_completion", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def test_the_older_completions_route(door: Door) -> None:
    """Its chunks have text and no delta; the same rules."""
    path = "/v1/completions"
    whole = completion_event("北") + completion_event("", "length")
    reply = door.ask(*in_chunks([whole]), path=path)
    assert (reply.body, door.line(reply)["outcome"]) == (whole, "ok")
    reply = door.ask(*in_chunks([completion_event("a")]), path=path)
    assert door.line(reply)["outcome"] == "truncated"
    assert door.received.target == path


def test_several_choices_end_one_by_one(door: Door) -> None:
    """n = 2: complete when each has its finish_reason, truncated when one is missing."""
    first, second = completion_event("a"), completion_event("b", None, 1)
    ends = completion_event("", "stop"), completion_event("", "stop", 1)
    parts = [first, second, ends[0], first.replace(b'"a"', b'"c"'), ends[1]]
    del parts[3]
    same(door, in_chunks(parts), b"".join(parts))
    reply = door.ask(*in_chunks([first, second, ends[1], first]))
    assert door.line(reply)["outcome"] == "truncated"
