"""Errors in the words of each API, the credential of each, and how each one's streams end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from common.captures import STREAMS, capture

from gateway.auth import credential
from gateway.errors import (
    BodyTooLarge,
    Draining,
    GatewayError,
    MethodNotAllowed,
    ModelNotAllowed,
    NotFound,
    Unauthorized,
    UpstreamFailed,
    UpstreamTimeout,
)
from gateway.forms import (
    Api,
    Ending,
    anthropic_type,
    api_of,
    engine_error,
    error_body,
    error_event,
)
from gateway.sse import TAIL
from gateway.streams import Stream, Verdict

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/v1/messages/batches", "anthropic"),
        ("/v1/messages/", "anthropic"),
        ("/v1/messagesx", "openai"),
        ("/v1/chat/completions", "openai"),
        ("/messages", "openai"),
        ("/", "openai"),
        ("", "openai"),
    ],
)
def test_whose_errors_a_path_speaks(path: str, api: Api) -> None:
    assert api_of(path) == api


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unauthorized("no"), "authentication_error"),
        (ModelNotAllowed("no"), "permission_error"),
        (NotFound("no"), "not_found_error"),
        (MethodNotAllowed(["POST"]), "invalid_request_error"),
        (BodyTooLarge("no"), "request_too_large"),
        (UpstreamFailed("no"), "api_error"),
        (Draining(), "overloaded_error"),
        (UpstreamTimeout("no"), "timeout_error"),
    ],
)
def test_our_errors_for_anthropics_clients(error: GatewayError, kind: str) -> None:
    assert json.loads(error_body(error, "anthropic", "r1")) == {
        "type": "error",
        "error": {"type": kind, "message": error.message},
        "request_id": "r1",
    }


def test_nginx_has_the_same_names_for_anthropics_errors() -> None:
    text = (ROOT / "nginx/templates/http/errors.conf.template").read_text()
    block = text.partition("$stack_anthropic_type {")[2].partition("}")[0]
    named = dict(re.findall(r"^\s+(\d{3})\s+(\w+);", block, re.MULTILINE))
    general = dict(re.findall(r'^\s+("~\^4"|default)\s+(\w+);', block, re.MULTILINE))
    for status in [*range(400, 432), 500, 502, 503, 504, 505, 507]:
        group = '"~^4"' if status < 500 else "default"
        assert named.get(str(status), general[group]) == anthropic_type(status), status


OPENAI = b'{"error": {"message": "bad", "type": "BadRequestError", "param": null, "code": 400}}'
ANTHROPIC = b'{"type":"error","error":{"type":"BadRequestError","message":"bad"}}'


@pytest.mark.parametrize(
    ("api", "body"),
    [("openai", OPENAI), ("anthropic", ANTHROPIC), ("openai", ANTHROPIC)],
)
def test_an_engines_error_in_that_form_stays_as_it_is(api: Api, body: bytes) -> None:
    assert engine_error(400, body, api, "r1") == (body, False)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (400, OPENAI, "invalid_request_error", "bad"),
        (404, b'{"detail":"Nope"}', "not_found_error", "Nope"),
        (401, b'{"error":"Unauthorized"}', "authentication_error", "Unauthorized"),
        (503, b"<html>", "overloaded_error", "The engine answered with HTTP status 503."),
        (500, b'{"type":"error","error":{"message":"x"}}', "api_error", "x"),
        (429, b'{"error":{"message":7}}', "rate_limit_error", "429"),
    ],
)
def test_another_error_is_put_in_anthropics_form(
    status: int, body: bytes, kind: str, message: str
) -> None:
    made, wrapped = engine_error(status, body, "anthropic", "r1")
    value = json.loads(made)
    assert wrapped
    assert (value["type"], value["error"]["type"], value["request_id"]) == ("error", kind, "r1")
    assert message in value["error"]["message"]


def test_an_encoded_error_body_is_wrapped() -> None:
    body, wrapped = engine_error(400, b"\x1f\x8b", "openai", "r1")
    assert wrapped
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_a_route_that_the_model_does_not_have_is_said_so() -> None:
    """vLLM registers routes by the kind of model; FastAPI's own 404 says nothing."""
    body, _ = engine_error(404, b'{"detail":"Not Found"}', "openai", "r1")
    assert "model that is served has no such route" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("mid_event", [True, False])
@pytest.mark.parametrize("ending", ["chat", "responses", "messages", "plain"])
def test_an_error_event_is_one_event(ending: Ending, mid_event: bool) -> None:
    event = error_event(UpstreamFailed("gone"), ending, mid_event, sequence=7)
    before = b"data: {" if mid_event else b"data: {}\n\n"
    half, whole, rest = (before + event).split(b"\n\n")
    assert half.startswith(b"data: {")
    assert rest == b""
    named = ending in {"responses", "messages"}
    assert whole.startswith(b"event: error\ndata: " if named else b"data: ")
    value = json.loads(whole.partition(b"data: ")[2])
    assert value["error"]["message"] == "gone"


def test_the_error_event_of_responses_suits_every_reader() -> None:
    """Flat as documented, nested as OpenAI's own clients want it before they raise."""
    event = error_event(UpstreamFailed("gone"), "responses", False, sequence=7)
    value = json.loads(event.partition(b"data: ")[2])
    flat = {"code": "upstream_error", "message": "gone", "param": None}
    nested = {"type": "server_error", **flat}
    assert value == {"type": "error", "sequence_number": 7, **flat, "error": nested}


def typed(kind: str, filler: str = "") -> bytes:
    data = json.dumps({"response": {"type": "x", "text": filler}, "type": kind})
    return f"event: {kind}\ndata: {data}\n\n".encode()


@pytest.mark.parametrize(
    ("ending", "events", "verdict"),
    [
        ("responses", [typed("response.output_text.delta"), typed("response.completed")], "ok"),
        ("responses", [typed("response.incomplete")], "ok"),
        ("responses", [typed("response.failed")], "error"),
        ("responses", [typed("response.output_text.done")], "truncated"),
        ("responses", [typed("response.completed", "y" * 3 * TAIL)], "ok"),
        ("responses", [typed("response.output_text.done", "y" * 3 * TAIL)], "truncated"),
        ("responses", [typed("response.completed", '"type":"response.failed"}')], "ok"),
        ("responses", [typed("response.completed")[:-4]], "truncated"),
        ("responses", [], "truncated"),
        ("responses", [b"data: [DONE]\n\n"], "truncated"),
        ("messages", [typed("message_delta"), typed("message_stop")], "ok"),
        ("messages", [typed("message_delta")], "truncated"),
        ("messages", [typed("content_block_delta"), typed("error")], "error"),
        ("messages", [b'event: message_stop\r\ndata:{"type": "message_stop"}\r\n\r\n'], "ok"),
        ("messages", [typed("message_stop"), b": keep-alive\n\n"], "ok"),
    ],
)
@pytest.mark.parametrize("cut", [1, 1000, 1 << 20])
def test_how_a_stream_with_typed_events_ended(
    ending: Ending, events: list[bytes], verdict: Verdict, cut: int
) -> None:
    """B11."""
    tracker = Stream(ending, withhold=False)
    whole = b"".join(events)
    for start in range(0, len(whole), cut):
        tracker.feed(whole[start : start + cut])
    assert tracker.verdict() == verdict


KEY = b"sk-0123456789abcdef"
BEARER = (b"authorization", b"Bearer " + KEY)
X_KEY = (b"x-api-key", KEY)


@pytest.mark.parametrize("headers", [[BEARER], [X_KEY], [X_KEY, BEARER], [BEARER, X_KEY]])
def test_anthropics_clients_send_the_key_either_way(headers: list[tuple[bytes, bytes]]) -> None:
    assert credential(headers, "anthropic") == KEY


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-api-key", b"")],
        [(b"x-api-key", b"a b")],
        [(b"x-api-key", b"caf\xe9")],
        [(b"x-api-key", b"a" * 513)],
        [X_KEY, X_KEY],
        [X_KEY, (b"x-api-key", b"other")],
        [X_KEY, (b"authorization", b"Bearer other")],
        [X_KEY, (b"authorization", b"Basic " + KEY)],
        [X_KEY, BEARER, BEARER],
        [(b"x-api-key", b"Bearer " + KEY)],
    ],
)
def test_two_credentials_are_none(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unauthorized):
        credential(headers, "anthropic")


def test_elsewhere_x_api_key_means_nothing() -> None:
    with pytest.raises(Unauthorized):
        credential([X_KEY], "openai")
    assert credential([BEARER, (b"x-api-key", b"other")], "openai") == KEY


RECORDED = [(ending, name) for ending, names in STREAMS.items() for name in names]


@pytest.mark.parametrize(("ending", "name"), RECORDED)
def test_a_real_stream_ends_with_its_last_event_and_not_before(ending: Ending, name: str) -> None:
    events = capture(name).events
    ended = []
    for count in range(len(events) + 1):
        tracker = Stream(ending, withhold=False)
        for event in events[:count]:
            tracker.feed(event)
        ended.append(tracker.verdict())
    first = ended.index("ok")
    assert ended == ["truncated"] * first + ["ok"] * (len(ended) - first)
    closing = len(events) - first  # after a finish_reason: usage and [DONE]
    assert closing == (2 if ending == "chat" else 0)
