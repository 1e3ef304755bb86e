"""Bodies and headers of both directions: nothing added, dropped or rewritten that is not the hop's.

B15, B26, B27, B30, B43.
"""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest
from common.rawhttp import build
from common.row import STREAM, WITH_USAGE, Door
from common.script import (
    DONE,
    JSON,
    SSE,
    Pause,
    Send,
    Step,
    answer,
    chunk,
    delta_event,
    finish_event,
    head,
    sse_head,
)
from common.servers import AUTH, CHAT

END = finish_event() + DONE
ODD_FIELDS = (
    '{"z":1,"chat_template_kwargs":{"enable_thinking":false,"x":[1.0]},"structured_outputs":'
    '{"choice":["a","b"]},"guided_json":{"type":"object"},"vllm_xargs":{"ä":"é"},"cache_salt":"s",'
    ' "temperature":1.0,"seed":12345678901234567890,"messages":[{"content":"北京🦊"}],'
    '"a":1e400,"model":"m" }\r\n\t'
).encode()
BODIES = {
    "odd fields": ODD_FIELDS,
    "escapes": b'{"a":"\\u00e9\\ud83e\\udd8a\\/\\b","b":"\\ud800"}',
    "repeated names": b'{"model":"a","model":"m","x":1,"x":2}',
    "white space": b' \n\t{ "a" : [ 1 , 2 ] }\n\n',
    "numbers": b'{"a":-0,"b":1E+5,"c":0.1000,"d":1e-400,"e":100000000000000000000000000}',
    "not finite": b'{"temperature": NaN,"top_p":1e999,"x":[Infinity,-Infinity],"max_tokens":-0}',
    "nothing": b"{}",
    "controls": b'{"a":"\\u0000\x7f","":null}',
    "a megabyte": b'{"a":"' + "北京".encode() * 180_000 + b'"}',
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_request_arrives_byte_for_byte(door: Door, name: str, chunked: bool) -> None:
    """B26, B30: unknown fields, odd numbers, order, blanks and escapes are not ours to touch."""
    body = BODIES[name]
    with door.client() as client:
        if chunked:
            start = build("POST", CHAT, {**AUTH, "transfer-encoding": "chunked"}, b"")
            client.send(start.replace(b"content-length: 0\r\n", b""))
            for at in range(0, len(body), max(7, len(body) // 50)):
                client.send(chunk(body[at : at + max(7, len(body) // 50)]))
            client.send(chunk(b""))
        else:
            client.send(build("POST", CHAT, AUTH, body))
        assert client.read_body(client.read_head()).status == 200
    assert hashlib.sha256(door.received.body).digest() == hashlib.sha256(body).digest()
    assert door.received.header("content-length") == str(len(body)).encode()
    assert door.received.header("transfer-encoding") is None


@pytest.mark.parametrize("body", [WITH_USAGE, b'{"stream":false, "n":1.0}', b'{"stream":null}'])
def test_a_request_that_needs_no_usage_stays_as_it_is(door: Door, body: bytes) -> None:
    """B26: asked for already, or no stream."""
    door.ask(body=body)
    assert door.received.body == body


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
MESSAGES: list[dict[str, object]] = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "content": []},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "assistant", "content": "x", "tool_calls": [CALL]},
    {"role": "developer", "content": "x"},
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "x"}]},
    {"role": "user", "content": [{"type": "text", "text": "x"}, IMAGE]},
    {"role": 5, "content": {"a": "b"}},
    {},
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_are_the_engines_affair(door: Door, message: dict[str, object]) -> None:
    """B27: each reaches it, and its 200, 400 and 500 come back as they are."""
    body = json.dumps({"messages": [{"role": "user", "content": "a"}, message]}).encode()
    error = b'{"error":{"message":"no","type":"BadRequestError","param":null,"code":400}}'
    for status, sent in ((200, b'{"x":1}'), (400, error), (500, error)):
        reply = door.ask(*answer(sent, status), body=body)
        assert (reply.status, reply.body) == (status, sent)
        assert door.received.body == body


NOT_FINITE = [
    b'{"choices":[{"logprobs":{"content":[{"logprob":-Infinity}]}}]}',
    b'{"choices":[],"x":NaN}',
    b'{"choices":[],"x":1e999}',
    b"not json at all",
    b"\xff\xfe\x00",
]


@pytest.mark.parametrize("sent", NOT_FINITE)
def test_an_answer_that_is_odd_json(door: Door, sent: bytes) -> None:
    """B30: relayed as bytes, so it cannot raise; plain and in a stream."""
    reply = door.ask(*answer(sent), body=b"{}")
    assert (reply.status, reply.body, reply.whole) == (200, sent, True)
    event = b"data: " + sent + b"\n\n"
    reply = door.ask(Send(sse_head()), Send(chunk(event)), Send(chunk(END)), Send(chunk(b"")))
    assert (reply.body, door.line(reply)["outcome"]) == (event + END, "ok")


@pytest.mark.parametrize("asked", [{}, {"accept-encoding": "gzip"}, {"accept-encoding": "br;q=1"}])
def test_an_encoded_answer(door: Door, asked: dict[str, str]) -> None:
    """B15: raw bytes with their encoding and length, whatever the client asked for."""
    body = gzip.compress(b'{"choices":[]}')
    reply = door.ask(*answer(body, headers=[("content-encoding", "gzip")]), body=b"{}", **asked)
    assert (reply.body, reply.header("content-encoding")) == (body, "gzip")
    assert reply.header("content-length") == str(len(body))
    assert door.received.header("accept-encoding") is None


LENGTHS: dict[str, tuple[int, bytes]] = {
    "right": (len(END), END),
    "too short": (len(END) - 9, END[:-9]),
    "zero": (0, b""),
    "too long": (len(END) + 9, END),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_stream_with_a_length(door: Door, name: str) -> None:
    """B15: the length is never passed on; what it cuts off is judged as what came."""
    length, came = LENGTHS[name]
    fields = [("content-type", SSE), ("content-length", str(length))]
    door.engine.enqueue(Send(head(200, fields) + END), Pause(0.02))
    door.engine.behaviour.idle_s = 0.05
    try:
        reply = door.ask()
    finally:
        door.engine.behaviour.idle_s = None
    assert reply.header("content-length") is None
    assert reply.whole
    assert reply.body.startswith(came)
    assert (b'"error"' in reply.body) == (name == "zero")


FRAMED_TWICE = [
    [("content-length", "5"), ("transfer-encoding", "chunked")],
    [("transfer-encoding", "chunked"), ("content-length", "5")],
    [("content-length", "5"), ("content-length", "6")],
    [("content-length", "-5")],
    [("content-length", "+5")],
    [("content-length", "5 5")],
    [("content-length", "0x5")],
    [("transfer-encoding", "xchunked"), ("content-length", "5")],
]


@pytest.mark.parametrize("fields", FRAMED_TWICE)
def test_an_answer_with_ambiguous_framing(door: Door, fields: list[tuple[str, str]]) -> None:
    """B15, B45: never a body that two readers would read differently; ours has one framing."""
    wire = head(200, [("content-type", JSON), *fields]) + chunk(b"hello") + chunk(b"")
    reply = door.ask(Send(wire), Pause(0.05), body=b"{}")
    assert reply.status == 502 or (reply.whole and reply.body == b"hello") or not reply.whole
    framing = [n for n, _ in reply.headers if n in {"content-length", "transfer-encoding"}]
    assert len(framing) == 1
    assert door.ask(body=b"{}").json()["object"] == "chat.completion"


HOP: list[tuple[str, str]] = [
    ("connection", "keep-alive, X-Hop"),
    ("x-hop", "1"),
    ("keep-alive", "timeout=5"),
    ("proxy-authenticate", "Basic"),
    ("te", "trailers"),
    ("trailer", "x-t"),
    ("upgrade", "h2c"),
    ("server", "uvicorn"),
    ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ("x-request-id", "of-the-engine"),
    ("x-accel-redirect", "/metrics"),
    ("x-accel-buffering", "yes"),
    ("set-cookie", "a=b"),
    ("openai-processing-ms", "7"),
]


@pytest.mark.parametrize("steps", ["stream", "plain", "error"])
def test_headers_of_the_hop_stay_there(door: Door, steps: str) -> None:
    """B15: dropped are those of the connection and those that are ours to say."""
    scripts: dict[str, tuple[Step, ...]] = {
        "stream": (Send(sse_head(*HOP)), Send(chunk(END)), Send(chunk(b""))),
        "plain": answer(headers=HOP),
        "error": answer({"error": {"message": "no"}}, 400, headers=HOP),
    }
    reply = door.ask(*scripts[steps])
    names = [name for name, _ in reply.headers]
    gone = {"x-hop", "keep-alive", "proxy-authenticate", "te", "trailer", "upgrade"}
    assert not set(names) & gone
    assert names.count("date") == names.count("x-request-id") == 1
    assert reply.header("date") != HOP[8][1]
    assert reply.header("x-request-id") != "of-the-engine"
    assert reply.header("server") in {None, "nginx"}
    assert reply.header("openai-processing-ms") == "7"
    assert reply.header("x-accel-buffering") == ("no" if steps == "stream" else None)
    if steps == "stream":
        assert reply.header("cache-control") == "no-cache, no-transform"


@pytest.mark.parametrize("kind", [JSON, SSE])
def test_trailers_are_no_headers(door: Door, kind: str) -> None:
    """B15: fields behind the last chunk come too late to say anything, also in one segment."""
    trailers = b"x-trailer: 1\r\nset-cookie: a=b\r\nretry-after: 9\r\n"
    fields = [("content-type", kind), ("transfer-encoding", "chunked")]
    reply = door.ask(Send(head(200, fields) + chunk(END) + b"0\r\n" + trailers + b"\r\n"))
    assert (reply.status, reply.body, reply.whole) == (200, END, True)
    assert not {"retry-after", "x-trailer", "set-cookie"} & {name for name, _ in reply.headers}


SENT = {
    "Host": "evil.example",
    "Connection": "keep-alive, X-Secret",
    "X-Secret": "1",
    "Cookie": "a=b",
    "Proxy-Authorization": "Basic eA==",
    "TE": "trailers",
    "Upgrade": "h2c",
    "Accept-Encoding": "gzip, br",
    "X-Api-Key": "other",
    "Forwarded": "for=1.2.3.4",
    "X-Forwarded-For": "1.2.3.4",
    "X-Forwarded-Host": "evil.example",
    "X-Real-IP": "1.2.3.4",
    "X-Original-URL": "/metrics",
    "Range": "bytes=0-1",
    "If-None-Match": "*",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "X-Request-Id": "abc-123",
}


def test_what_the_engine_sees_of_a_client(door: Door) -> None:
    """B43: the allow-list, our Host, our length, the request id; no key, cookie or claim."""
    with door.client() as client:
        reply = client.request("POST", CHAT, {**AUTH, **SENT}, WITH_USAGE)
    assert {name.decode(): value.decode() for name, value in door.received.headers} == {
        "host": f"127.0.0.1:{door.engine.port}",
        "content-length": str(len(WITH_USAGE)),
        "content-type": JSON,
        "traceparent": SENT["traceparent"],
        "x-request-id": "abc-123",
    }
    assert reply.header("x-request-id") == "abc-123"


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/json; charset=utf-8"])
def test_a_content_type_is_passed_on(door: Door, content_type: str) -> None:
    """Its meaning is the engine's affair; curl's default is a form."""
    door.ask(body=b'{"a":1}', **{"content-type": content_type})
    assert (door.received.header("content-type") or b"").decode() == content_type


def test_a_compressed_stream_is_not_written_into(door: Door) -> None:
    """B15: its events cannot be read, so nothing can be judged, added or taken out."""
    body = gzip.compress(delta_event() + END)
    fields = ("content-encoding", "gzip")
    for sent in (body, body[:-9]):
        reply = door.ask(Send(sse_head(fields)), Send(chunk(sent)), Send(chunk(b"")), body=STREAM)
        assert (reply.body, reply.header("content-encoding")) == (sent, "gzip")
