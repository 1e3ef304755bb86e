"""Answers that end badly: no invented stop, one error event, the engine's status kept.

B8, B9, B10.
"""

from __future__ import annotations

import json
import time

import pytest
from common.events import parse, the_error
from common.rawhttp import Reply
from common.row import Door
from common.script import (
    DONE,
    SSE,
    Fin,
    Pause,
    Reset,
    Script,
    Send,
    answer,
    chunk,
    delta_event,
    finish_event,
    head,
    sse_head,
)

ROLE = delta_event("", role="assistant")
EVENTS = ROLE + delta_event("a") + delta_event("b") + delta_event("c")
CUT = (Pause(0.03), Reset())
BEGUN = (Send(sse_head()), *[Send(chunk(part + b"\n\n")) for part in EVENTS.split(b"\n\n")[:-1]])
LONG = [("content-type", SSE), ("content-length", "99999")]
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3}}\n\n'
NULL_FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":""}]}\n\n'
HALF_CHUNK = b"40\r\ndata: {"

TRUNCATED: dict[str, tuple[Script, bytes]] = {
    "reset": ((*BEGUN, *CUT), EVENTS),
    "fin without the terminator": ((*BEGUN, Fin()), EVENTS),
    "terminator and no signal": ((*BEGUN, Send(chunk(b""))), EVENTS),
    "reset after the role": ((*BEGUN[:2], *CUT), ROLE),
    "fin after the role": ((*BEGUN[:2], Fin()), ROLE),
    "reset after the head": ((Send(sse_head()), *CUT), b""),
    "fin after the head": ((Send(sse_head()), Fin()), b""),
    "terminator after the head": ((Send(sse_head() + chunk(b"")),), b""),
    "reset in a chunk": ((*BEGUN, Send(HALF_CHUNK), *CUT), EVENTS + b"data: {"),
    "fin in a chunk": ((*BEGUN, Send(HALF_CHUNK), Fin()), EVENTS + b"data: {"),
    "fin in a chunk's size": ((*BEGUN, Send(b"4"), Fin()), EVENTS),
    "fin in the last chunk": ((*BEGUN, Send(b"0\r\n"), Fin()), EVENTS),
    "silence in a line": ((*BEGUN, Send(chunk(b"data: {")), Pause(9)), EVENTS + b"data: {"),
    "silence in a chunk": ((*BEGUN, Send(HALF_CHUNK), Pause(9)), EVENTS + b"data: {"),
    "usage and no finish": ((*BEGUN, Send(chunk(USAGE + b"\n")), Send(chunk(b""))), EVENTS),
    "an empty finish_reason": ((*BEGUN, Send(chunk(NULL_FINISH)), Send(chunk(b""))), EVENTS),
    "until close": ((Send(head(200, [LONG[0]]) + EVENTS), Fin()), EVENTS),
    "until close, reset": ((Send(head(200, [LONG[0]]) + EVENTS), *CUT), EVENTS),
    "short of its length": ((Send(head(200, LONG) + EVENTS), Fin()), EVENTS),
    "short of its length, reset": ((Send(head(200, LONG) + EVENTS), *CUT), EVENTS),
    "broken chunk size": ((*BEGUN, Send(b"xyz\r\n")), EVENTS),
    "broken chunk end": ((*BEGUN, Send(b"1\r\n:XX")), EVENTS + b":"),
    "a comment at the end": ((*BEGUN, Send(chunk(b": up\n")), Fin()), EVENTS + b": up\n"),
    "a CR at the end": ((*BEGUN, Send(chunk(b"data: {}\r")), Fin()), EVENTS + b"data: {}\r"),
    "half a character": (
        (*BEGUN, Send(chunk(b"data: \xe5\x8c")), *CUT),
        EVENTS + b"data: \xe5\x8c",
    ),
}
SLOW = {name for name in TRUNCATED if name.startswith("silence")}


def strict(body: bytes) -> bytes:
    """A half character cannot be decoded; everything else must be."""
    return body.replace(b"\xe5\x8c", b"")


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_stream(door: Door, name: str) -> None:
    """B8, B9: one error event that stands alone, no stop, no [DONE], its own outcome and id."""
    script, sent = TRUNCATED[name]
    reply = door.ask(*script)
    assert (reply.status, reply.whole) == (200, True)
    assert reply.body.startswith(sent)
    error = the_error(strict(reply.body))
    assert error["code"] == ("upstream_timeout" if name in SLOW else "upstream_error")
    assert b'"stop"' not in reply.body
    line = door.line(reply)
    assert (line["outcome"], line["reason"]) == ("truncated", error["code"])
    assert line["request_id"] == reply.header("x-request-id")
    if name in SLOW:
        door.engine.wait_until(lambda: door.received.closed_at, 1)


def test_a_half_event_stays_apart(door: Door) -> None:
    """B9: wherever in an event, and in whatever line ending, the bytes stop."""
    event = b"event: x\r\ndata: {}\r\n\r\n"
    for cut in range(1, len(event)):
        reply = door.ask(*BEGUN, Send(chunk(event[:cut])), Fin())
        the_error(reply.body)
        assert reply.body.startswith(EVENTS + event[:cut])
        assert len(parse(reply.body)) in {5, 6}, reply.body  # 6: the half one was closed by us


@pytest.mark.parametrize(
    "end",
    [
        (Send(chunk(finish_event() + DONE)), *CUT),
        (Send(chunk(finish_event() + DONE)), Fin()),
        (Send(chunk(finish_event())), *CUT),
        (Send(chunk(finish_event() + DONE)), Send(b"zzz\r\n")),
        (Send(chunk(DONE)), Pause(9)),
    ],
    ids=["reset after done", "fin", "reset after finish", "broken framing", "silence"],
)
def test_what_was_complete_stays_complete(door: Door, end: Script) -> None:
    """The other way round: only framing is missing, so no error is invented either."""
    reply = door.ask(*BEGUN, *end)
    assert reply.whole
    assert b'"error"' not in reply.body
    assert door.line(reply)["outcome"] == "ok"


OPENAI = {"error": {"message": "bad", "type": "BadRequestError", "param": None, "code": 400}}
PLAIN = "application/json"


def openai_shaped(reply: Reply) -> str:
    """The message of an error in OpenAI form with the right length and type."""
    assert (reply.header("content-type") or "").startswith(PLAIN)
    assert reply.header("content-length") == str(len(reply.body))
    message: str = reply.json()["error"]["message"]
    assert message
    assert "127.0.0.1" not in message
    return message


@pytest.mark.parametrize(
    "status", [400, 401, 402, 404, 405, 409, 413, 422, 429, 451, 500, 501, 503]
)
@pytest.mark.parametrize("body", [b'{"stream":true}', b"{}"], ids=["stream", "plain"])
def test_a_status_of_the_engine(door: Door, status: int, body: bytes) -> None:
    """B10: its JSON byte for byte with Retry-After; a foreign body wrapped; for both kinds."""
    sent = json.dumps(OPENAI, indent=2).encode()
    reply = door.ask(*answer(sent, status, headers=[("retry-after", "7")]), body=body)
    assert (reply.status, reply.body, reply.header("retry-after")) == (status, sent, "7")
    assert door.line(reply)["outcome"] == "upstream_error"
    html = answer(b"<html>no</html>", status, "text/html", [("retry-after", "7")])
    reply = door.ask(*html, body=body)
    assert (reply.status, reply.header("retry-after")) == (status, "7")
    openai_shaped(reply)


FRAMINGS: dict[str, Script] = {
    "chunked": (
        Send(head(400, [("content-type", PLAIN), ("transfer-encoding", "chunked")])),
        *[Send(chunk(json.dumps(OPENAI).encode()[at : at + 9])) for at in range(0, 90, 9)],
        Send(chunk(b"")),
    ),
    "until close": (
        Send(head(400, [("content-type", PLAIN)]) + json.dumps(OPENAI).encode()),
        Fin(),
    ),
    "as an event stream": answer(b'data: {"error":{"message":"bad"}}\n\n', 400, SSE),
    "too short a length": answer(b"", 400, PLAIN, []),
    "head alone": (Send(head(400, [("content-length", "0")])),),
    "length 33": (
        Send(head(400, [("content-type", PLAIN), ("content-length", "33")])),
        Send(json.dumps(OPENAI).encode()),
    ),
    "cut": (Send(head(400, [("content-length", "99")]) + b'{"error":'), *CUT),
}


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_400_in_every_framing(door: Door, name: str) -> None:
    """B10, B15: the status counts, the body is whole JSON."""
    reply = door.ask(*FRAMINGS[name])
    assert reply.status == 400
    openai_shaped(reply)


@pytest.mark.parametrize("status", [301, 302, 307, 304])
def test_a_redirect_is_not_followed_nor_passed_on(door: Door, status: int) -> None:
    """It would name a host that no client can reach."""
    reply = door.ask(*answer(b"", status, headers=[("location", "http://vllm:8000/x")]))
    assert (reply.status, reply.header("location")) == (502, None)
    openai_shaped(reply)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (answer(b""), 502),
        ((Send(head(200, [("content-type", PLAIN)])), Fin()), 502),
        (
            (Send(head(200, [("content-type", PLAIN), ("transfer-encoding", "chunked")])), Fin()),
            502,
        ),
        ((Fin(),), 502),
        (CUT, 502),
        ((Send(b"HTTP/1.1 200"), Fin()), 502),
        ((Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-str"), *CUT), 502),
        ((Pause(9),), 504),
        ((Send(head(200, [("content-length", "5")])), Pause(9)), 504),
    ],
)
def test_nothing_usable_is_an_error_with_a_status(door: Door, script: Script, status: int) -> None:
    """B10: never an empty 200, and asked once (B24)."""
    reply = door.ask(*script)
    assert reply.status == status
    openai_shaped(reply)
    assert len(door.engine.requests) == 1


def test_json_where_a_stream_was_asked_for(door: Door) -> None:
    """B10: the engine ignored the flag; its answer is relayed as what it is."""
    reply = door.ask(*answer())
    assert (reply.header("content-type"), reply.whole) == (PLAIN, True)
    assert reply.json()["object"] == "chat.completion"
    assert door.line(reply)["outcome"] == "ok"


@pytest.mark.parametrize("content_type", ["Text/Event-Stream", "text/event-stream;charset=utf-8"])
@pytest.mark.parametrize("body", [b'{"stream":true}', b"{}"], ids=["asked", "not asked"])
def test_a_stream_is_what_the_engine_calls_one(door: Door, content_type: str, body: bytes) -> None:
    reply = door.ask(Send(head(200, [("content-type", content_type)]) + EVENTS), Fin(), body=body)
    the_error(reply.body)


ERRORS = [
    b'data: {"error":{"message":"boom","type":"x","param":null,"code":500}}\n\n',
    b'data: {"error":"boom"}\n\n',
    b'event: error\ndata: {"error":{"message":"boom"}}\n\n',
    b'data:{"error":{"message":"boom"}}\r\n\r\n',
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("before", [b"", EVENTS], ids=["at once", "later"])
@pytest.mark.parametrize("after", [b"", DONE], ids=["no done", "done"])
def test_an_error_event_of_the_engine(
    door: Door, before: bytes, error: bytes, after: bytes
) -> None:
    """B10: relayed unchanged, nothing added, counted as the engine's error."""
    sent = before + error + after
    reply = door.ask(Send(sse_head()), Send(chunk(sent)), Send(chunk(b"")))
    assert (reply.body, reply.whole) == (sent, True)
    assert door.line(reply)["outcome"] == "upstream_error"


def test_a_refused_connection(door: Door) -> None:
    """B10: 503 in JSON with the phase and Retry-After, never a 200."""
    door.engine.stop_listening(reset=True)
    try:
        for body in (b'{"stream":true}', b"{}"):
            reply = door.ask(body=body)
            assert (reply.status, reply.json()["error"]["code"]) == (503, "not_ready")
            assert int(reply.header("retry-after") or 0) > 0
            assert "phase" in openai_shaped(reply)
    finally:
        door.engine.listen()
        door.gateway.wait_ready()


EXTRA = {
    "garbage": b"garbage",
    "half a head": b"HTTP/1.1 200 OK\r\nx: ",
    "half a status line": b"HTTP/1",
    "line ends": b"\r\n\r\n",
    "another answer": head(200, [("content-length", "2")]) + b"no",
}


@pytest.mark.parametrize("apart_s", [0.0, 0.02], ids=["same segment", "later"])
@pytest.mark.parametrize("extra", EXTRA.values(), ids=list(EXTRA))
@pytest.mark.parametrize("status", [200, 400])
def test_bytes_after_an_answer_harm_nobody(
    door: Door, status: int, extra: bytes, apart_s: float
) -> None:
    """B15: too short a Content-Length: the rest belongs to no answer, least of all the next."""
    body = json.dumps(OPENAI).encode()
    fields = [("content-type", PLAIN), ("content-length", str(len(body)))]
    first = head(status, fields) + body
    late = (Send(first), Pause(apart_s), Send(extra))
    reply = door.ask(*(late if apart_s else (Send(first + extra),)))
    assert (reply.status, reply.body) == (status, body)
    time.sleep(2 * apart_s)  # what comes while the next request waits cannot be told apart
    for _ in range(2):
        second = door.ask(body=b"{}")
        assert (second.status, second.json()["object"]) == (200, "chat.completion")
