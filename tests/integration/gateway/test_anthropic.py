"""/v1/messages as Anthropic's clients use it: its key header, its query, its errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from common.captures import capture
from common.fake_vllm import FakeVLLM
from common.rawhttp import Client, Reply, once
from common.script import answer
from common.servers import AUTH, KEY, GatewayProcess, write_keys

Start = Callable[..., GatewayProcess]
MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
X_KEY = {"x-api-key": KEY}
VERSION = {"anthropic-version": "2023-06-01", "anthropic-beta": "a-2025-01-01,b-2025-02-02"}
# A system entry after the user's: newer clients send it, stricter schemas refuse it.
BODY = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"},{"role":"system"}]}'


def is_refusal(reply: Reply, status: int, kind: str) -> bool:
    value = reply.json()
    assert value["request_id"] == reply.header("x-request-id")
    assert reply.header("content-type") == "application/json"
    return (reply.status, value["type"], value["error"]["type"]) == (status, "error", kind)


@pytest.mark.parametrize("key", [X_KEY, AUTH, {**X_KEY, **AUTH}])
@pytest.mark.parametrize("path", [MESSAGES, COUNT])
def test_a_clients_request_arrives(
    fake: FakeVLLM, gateway: GatewayProcess, path: str, key: dict[str, str]
) -> None:
    """B12."""
    recorded = capture("messages" if path == MESSAGES else "count_tokens")
    fake.enqueue(*answer(recorded.body))
    reply = once(gateway.port, "POST", f"{path}?beta=true", {**key, **VERSION}, BODY)
    assert (reply.status, reply.body) == (200, recorded.body)
    (request,) = fake.requests
    assert (request.target, request.body) == (f"{path}?beta=true", BODY)
    assert request.header("anthropic-version") == b"2023-06-01"
    assert request.header("anthropic-beta") == b"a-2025-01-01,b-2025-02-02"
    assert request.header("x-api-key") is None
    assert request.header("authorization") is None
    assert gateway.wait_event()["key"] == "default"


@pytest.mark.parametrize(
    "query", ["?a=b", "?beta=true&a=b", "?beta=false", "?BETA=true", f"?beta=true&x-api-key={KEY}"]
)
def test_no_other_query_goes_along(fake: FakeVLLM, gateway: GatewayProcess, query: str) -> None:
    assert once(gateway.port, "POST", MESSAGES + query, X_KEY, BODY).status == 200
    assert fake.requests[0].target == MESSAGES


@pytest.mark.parametrize(
    "lines",
    [
        b"x-api-key: wrong-0123456789\r\n",
        b"x-api-key: \r\n",
        b"x-api-key: caf\xe9\r\n",
        b"x-api-key: Bearer " + KEY.encode() + b"\r\n",
        b"x-api-key: " + KEY.encode() + b"x\r\n",
        b"x-api-key: " + b"a" * 20_480 + b"\r\n",
        b"x-api-key: " + KEY.encode() + b"\r\nx-api-key: " + KEY.encode() + b"\r\n",
        b"x-api-key: " + KEY.encode() + b"\r\nauthorization: Bearer wrong-0123456789\r\n",
        b"authorization: Bearer " + KEY.encode() + b"\r\nx-api-key: wrong-0123456789\r\n",
        b"x-api-key: " + KEY.encode() + b"\r\nauthorization: Basic x\r\n",
    ],
)
def test_only_one_key_passes(fake: FakeVLLM, gateway: GatewayProcess, lines: bytes) -> None:
    """B41."""
    with gateway.client() as client:
        client.send(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n" + lines)
        client.send(b"content-length: 2\r\n\r\n{}")
        reply = client.read_body(client.read_head())
    assert is_refusal(reply, 401, "authentication_error")
    assert not fake.requests


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/v1/tokenize", "/v1/messagesx"]
)
def test_elsewhere_x_api_key_is_no_key(fake: FakeVLLM, gateway: GatewayProcess, path: str) -> None:
    method = "GET" if path == "/v1/models" else "POST"
    reply = once(gateway.port, method, path, X_KEY)
    assert reply.status == (404 if path.endswith("x") else 401)
    assert "code" in reply.json()["error"]
    assert not fake.requests


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", MESSAGES, 405, "invalid_request_error"),
        ("OPTIONS", COUNT, 405, "invalid_request_error"),
        ("POST", "/v1/messages/batches", 404, "not_found_error"),
        ("POST", "/v1/messages/", 404, "not_found_error"),
        ("GET", "/v1/messages/x/../../models", 404, "not_found_error"),
    ],
)
def test_refusals_have_its_form(
    gateway: GatewayProcess, method: str, path: str, status: int, kind: str
) -> None:
    assert is_refusal(once(gateway.port, method, path, X_KEY), status, kind)


@pytest.mark.parametrize("name", ["messages_unknown_model", "messages_too_long"])
def test_the_engines_own_errors_come_through(
    fake: FakeVLLM, gateway: GatewayProcess, name: str
) -> None:
    recorded = capture(name)
    fake.enqueue(*answer(recorded.body, recorded.status))
    reply = once(gateway.port, "POST", MESSAGES, X_KEY, BODY)
    assert (reply.status, reply.body) == (recorded.status, recorded.body)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("messages_invalid", "Field required"),
        ("messages_broken_json", "JSON decode error"),
        ("messages_media_type", "Unsupported Media Type"),
        ("messages_get", "Method Not Allowed"),
    ],
)
def test_what_vllm_says_in_another_form_is_put_into_this_one(
    fake: FakeVLLM, gateway: GatewayProcess, name: str, message: str
) -> None:
    recorded = capture(name)
    fake.enqueue(*answer(recorded.body, recorded.status))
    reply = once(gateway.port, "POST", MESSAGES, X_KEY, BODY)
    assert is_refusal(reply, recorded.status, "invalid_request_error")
    assert message in reply.json()["error"]["message"]


def test_what_came_before_the_route_has_its_form_too(start: Start, tmp_path: Path) -> None:
    """No model allowed, no engine, a stop: 403, 503, 503."""
    only = f'[[key]]\nname = "a"\nkey = "{KEY}"\nmodels = ["other"]\n'
    with FakeVLLM() as fake:
        gateway = start(fake.url, keys_file=write_keys(tmp_path, only), hold_s=0.1)
        gateway.wait_ready()
        refused = once(gateway.port, "POST", MESSAGES, X_KEY, BODY)
        assert is_refusal(refused, 403, "permission_error")
    gateway = start("http://127.0.0.1:9", hold_s=0.1, drain_s=5)
    refused = once(gateway.port, "POST", MESSAGES, X_KEY, BODY)
    assert is_refusal(refused, 503, "overloaded_error")
    assert refused.header("retry-after") == "10"


def test_too_many_waiting_is_an_overload(start: Start) -> None:
    with FakeVLLM() as fake:
        fake.behaviour.tokens, fake.behaviour.interval_s = 1000, 0.05
        gateway = start(fake.url, max_concurrency=1, queue_size=0)
        gateway.wait_ready()
        with Client(gateway.port) as first:
            first.request("POST", MESSAGES, X_KEY, b'{"stream":true}', stream=True)
            refused = once(gateway.port, "POST", MESSAGES, X_KEY, BODY)
            assert is_refusal(refused, 503, "overloaded_error")
            assert refused.header("retry-after")
