"""What a scripted upstream does with one request: steps, and the bytes they are made of.

A script is a tuple of steps. `Send` bytes go out as they are, one segment each (TCP_NODELAY),
so a test decides where a cut falls. Nothing here knows about sockets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Send:
    """Write these bytes now."""

    data: bytes


@dataclass(frozen=True)
class Pause:
    """Do nothing for so long; ends early, and with it the script, when the peer closes."""

    seconds: float


@dataclass(frozen=True)
class Repeat:
    """Send `data` `times` times, `interval_s` apart, until the peer closes."""

    data: bytes
    times: int
    interval_s: float


@dataclass(frozen=True)
class Fin:
    """Close in the ordinary way, whatever was promised."""


@dataclass(frozen=True)
class Reset:
    """Close with a TCP reset (SO_LINGER 0)."""


Step = Send | Pause | Repeat | Fin | Reset
Script = tuple[Step, ...]

DONE = b"data: [DONE]\n\n"
SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"


def head(status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A response head as bytes, with the headers given and no other."""
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def sse_head(*extra: tuple[str, str]) -> bytes:
    """The head of a chunked event stream, as vLLM sends it."""
    return head(200, [("content-type", SSE), ("transfer-encoding", "chunked"), *extra])


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked transfer encoding; `chunk(b"")` is the terminator."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta_event(text: str = "x", **delta: object) -> bytes:
    """EV(text): one chat completion chunk and its blank line."""
    return _event({"content": text, **delta}, None)


def finish_event(reason: str = "stop") -> bytes:
    """The chunk that says why generation ended."""
    return _event({}, reason)


def _event(delta: dict[str, object], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def stream(*texts: str, interval_s: float = 0.0) -> Script:
    """A whole and proper chat stream: role, one event a text, finish, [DONE]."""
    events = [delta_event("", role="assistant"), *map(delta_event, texts), finish_event(), DONE]
    steps: list[Step] = [Send(sse_head())]
    for event in events:
        steps += [Send(chunk(event)), Pause(interval_s)]
    return (*steps, Send(chunk(b"")))


def answer(
    body: bytes | object = None,
    status: int = 200,
    content_type: str = JSON,
    headers: Sequence[tuple[str, str]] = (),
) -> Script:
    """A whole response with a length. `body`: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body or completion()).encode()
    fields = [("content-type", content_type), ("content-length", str(len(data))), *headers]
    return (Send(head(status, fields) + data),)


def completion(text: str = "Paris.") -> dict[str, object]:
    """A chat completion that did not stream."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"id": "c1", "object": "chat.completion", "choices": [choice], "usage": usage}
