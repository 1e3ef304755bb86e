"""The other APIs through both doors: responses, Anthropic's messages, forms. B11, B12, B36."""

from __future__ import annotations

import hashlib

import pytest
from common.captures import capture
from common.rawhttp import build
from common.row import Door
from common.script import Fin, Reset, Send, answer, chunk, head, sse_head
from common.servers import AUTH, KEY

CREATED = b'event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n'
DELTA = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n'
CUT = b'event: response.incomplete\ndata: {"response":{},"type":"response.incomplete"}\n\n'


@pytest.mark.parametrize("end", [Send(chunk(b"")), Fin(), Reset()], ids=["whole", "fin", "rst"])
def test_an_incomplete_response_is_a_complete_stream(door: Door, end: Send | Fin | Reset) -> None:
    """B11: nothing is added to it, even when only the framing's end is missing."""
    events = (CREATED, DELTA, DELTA, CUT)
    script = [Send(sse_head()), *(Send(chunk(event)) for event in events), end]
    reply = door.ask(*script, path="/v1/responses")
    assert (reply.whole, reply.body) == (True, b"".join(events))
    assert door.line(reply)["outcome"] == "ok"


@pytest.mark.parametrize("end", [Send(chunk(b"")), Fin(), Reset()], ids=["whole", "fin", "rst"])
def test_a_response_without_its_last_event_is_truncated(
    door: Door, end: Send | Fin | Reset
) -> None:
    """B11."""
    script = [Send(sse_head()), Send(chunk(CREATED + DELTA)), end]
    reply = door.ask(*script, path="/v1/responses")
    assert reply.body.startswith(CREATED + DELTA + b'event: error\ndata: {"type": "error", ')
    assert door.line(reply)["outcome"] == "truncated"


@pytest.mark.parametrize("cut", [1, 7, 1 << 16])
def test_messages_come_through(door: Door, cut: int) -> None:
    """B12: the key header, the query, the versions; the stream of a real engine in any pieces."""
    recorded = capture("messages_stream").body
    pieces = [recorded[at : at + cut] for at in range(0, len(recorded), cut)]
    body = b'{"stream":true,"messages":[{"role":"user","content":"x"},{"role":"system"}]}'
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "anthropic-beta": "a,b"}
    door.engine.enqueue(
        Send(sse_head()), *(Send(chunk(piece)) for piece in pieces), Send(chunk(b""))
    )
    with door.client() as client:
        reply = client.request("POST", "/v1/messages?beta=true", headers, body)
    assert (reply.status, reply.whole, reply.body) == (200, True, recorded)
    assert (door.received.target, door.received.body) == ("/v1/messages?beta=true", body)
    assert door.received.header("anthropic-version") == b"2023-06-01"
    assert door.received.header("anthropic-beta") == b"a,b"
    assert door.received.header("x-api-key") is None
    assert door.line(reply)["outcome"] == "ok"


def test_a_broken_message_ends_with_its_error_event(door: Door) -> None:
    first = capture("messages_stream").events[0]
    script = [Send(sse_head()), Send(chunk(first)), Reset()]
    reply = door.ask(*script, path="/v1/messages")
    error = b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": '
    assert reply.body.startswith(first + error)
    assert b"message_stop" not in reply.body
    assert door.line(reply)["outcome"] == "truncated"


@pytest.mark.parametrize(
    ("path", "headers", "status", "kind"),
    [
        ("/v1/messages", {}, 401, "authentication_error"),
        ("/v1/messages/batches", AUTH, 404, "not_found_error"),
        ("/v1/messages", {**AUTH, "content-length": "99999999999"}, 413, "request_too_large"),
    ],
)
def test_refusals_of_either_have_anthropics_form(
    door: Door, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    """B12: the last one is nginx's own where nginx is the door."""
    reply = door.raw(build("POST", path, headers, b""))
    assert (reply.status, reply.json()["type"]) == (status, "error")
    assert reply.json()["error"]["type"] == kind
    assert reply.json()["request_id"] == reply.header("x-request-id")


def test_the_engines_retry_time_stays(door: Door) -> None:
    busy = answer(b"<html>", 503, "text/html", [("retry-after", "7")])
    reply = door.ask(*busy, path="/v1/messages")
    assert (reply.status, reply.header("retry-after")) == (503, "7")
    assert reply.json()["error"]["type"] == "overloaded_error"


def test_a_probe_of_the_root(door: Door) -> None:
    """B12."""
    with door.client() as client:
        reply = client.request("HEAD", "/")
    assert (reply.status, reply.body) == (404, b"")


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_form_goes_through(door: Door, in_chunks: bool) -> None:
    """B36."""
    noise = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(40_000))
    part = 'Content-Disposition: form-data; name="file"; filename="a\\"b é.wav"'.encode()
    model = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    body = b"%b--b\r\n%b\r\n\r\n%b\r\n--x\r\n--\r\n--b--\r\n" % (model, part, noise)
    headers = {**AUTH, "content-type": "multipart/form-data; boundary=b"}
    request = build("POST", "/v1/audio/transcriptions", headers, body)
    if in_chunks:
        start = request[: -len(body)].replace(
            b"content-length: %d" % len(body), b"transfer-encoding: chunked"
        )
        request = start + chunk(body[:70_000]) + chunk(body[70_000:]) + chunk(b"")
    assert door.raw(request).status == 200
    assert door.received.body == body
    assert door.received.header("content-type") == b"multipart/form-data; boundary=b"
    assert door.received.header("authorization") is None


def test_a_broken_whole_answer_is_no_short_one(door: Door) -> None:
    """Of a light route too."""
    fields = [("content-type", "application/json"), ("content-length", "100")]
    reply = door.ask(Send(head(200, fields) + b'{"count":'), Fin(), path="/v1/tokenize")
    assert (reply.status, reply.whole) == (200, False)
    assert door.line(reply)["outcome"] == "truncated"
