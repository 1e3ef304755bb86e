"""Framing and verdicts on bytes alone."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sse import TAIL
from gateway.streams import Stream, judge_chat

FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def frames(stream: bytes) -> tuple[int, bool]:
    """Reference: closed frames, and whether one is open."""
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    count, is_open = 0, False
    for line in lines[:-1]:
        if line:
            is_open = True
        elif is_open:
            count, is_open = count + 1, False
    return count, is_open or bool(lines[-1])


def track(pieces: list[bytes]) -> Stream:
    tracker = Stream("chat", withhold=False)
    for piece in pieces:
        tracker.feed(piece)
    return tracker


@given(st.lists(st.lists(st.sampled_from([b"a", b"data: x", b"\n", b"\r", b"\r\n"])), max_size=8))
def test_any_cut_gives_the_same_frames(parts: list[list[bytes]]) -> None:
    pieces = [b"".join(part) for part in parts if part]
    tracker = track(pieces)
    assert (tracker.frames.count, tracker.frames.open) == frames(b"".join(pieces))


@given(st.binary(max_size=64), st.data())
def test_any_bytes_in_any_pieces(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges) if a < b]
    tracker = track(pieces)
    assert (tracker.frames.count, tracker.frames.open) == frames(stream)


def test_memory_is_bounded_for_an_endless_line() -> None:
    tracker = track([b"x" * 1000] * 10_000)
    assert len(tracker.tail) <= 2 * TAIL


@pytest.mark.parametrize(
    ("tail", "verdict"),
    [
        (b"", "truncated"),
        (DELTA, "truncated"),
        (DELTA + FINISH, "ok"),
        (DELTA + FINISH + USAGE, "ok"),
        (DELTA + FINISH + USAGE + DONE, "ok"),
        (DELTA + DONE, "ok"),
        (DONE[:-2], "ok"),
        (b"data:[DONE]\r\n\r\n", "ok"),
        (DELTA + b": done [DONE]\n\n", "truncated"),
        (b'data: {"choices":[{"delta":{"content":"data: [DONE]\\n"}}]}\n\n', "truncated"),
        (b'data: {"error":{"message":"x"}}\n\n' + DONE, "error"),
        (b'data: {"error":{"message":"x"}}\n\n', "error"),
        (FINISH + DELTA, "truncated"),
        (b"half a line of something\n\n" + FINISH, "ok"),
        (FINISH + DELTA[:30], "ok"),
        (b"data: " + b"[" * 5000 + b"\n\n", "truncated"),
        (b'data: {"choices":[3]}\n\n', "truncated"),
    ],
)
def test_verdicts(tail: bytes, verdict: str) -> None:
    assert judge_chat(tail) == verdict
