"""What holds on every route of the table alike: keys, paths, methods, bytes, errors, endings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from common.captures import STREAMS, capture
from common.fake_vllm import Behaviour, FakeVLLM
from common.rawhttp import Client, Reply, build, once
from common.row import WITH_USAGE
from common.script import Fin, Reset, Script, Send, Step, answer, chunk, sse_head
from common.servers import AUTH, KEY, GatewayProcess, write_keys

from gateway.routes.denied import DENIED
from gateway.routes.table import ENGINE_ROUTES, EngineRoute

Start = Callable[..., GatewayProcess]

LIMIT = 1 << 21
ROUTES = pytest.mark.parametrize("route", ENGINE_ROUTES, ids=lambda route: route.path)


def error_of(reply: Reply, route: EngineRoute) -> dict[str, Any]:
    """The error object of an answer, which has the form of the route's API."""
    value: dict[str, Any] = reply.json()
    if route.api == "anthropic":
        assert set(value) == {"type", "error", "request_id"}
        assert value["type"] == "error"
        assert set(value["error"]) == {"type", "message"}
    else:
        assert set(value) == {"error"}
        assert set(value["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = value["error"]
    return error


ODD_BODY = (
    '{"model":"m","z":1,"a":2,"stream":false,"temperature":1.0,"seed":12345678901234567890,'
    '"chat_template_kwargs":{"x":null},"structured_outputs":{"json":{}},"guided_json":"{}",'
    '"vllm_xargs":{"k":[1]},"cache_salt":"s","messages":[{"role":"developer","content":[]},'
    '{"role":"assistant","content":null,"tool_calls":[{}]},{"role":"tool"}],'
    '"prompt":"naïve 猫 \\u00e9","top_p":1e999,"x":NaN,"y":-Infinity,"n":-0}'
).encode()


@ROUTES
def test_the_engine_gets_the_bytes_and_little_else(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute
) -> None:
    """B26, B27, B30, B43."""
    headers = {
        **AUTH,
        "host": "evil.example",
        "connection": "keep-alive, x-secret",
        "x-secret": "1",
        "cookie": "a=b",
        "proxy-authorization": "Basic x",
        "te": "trailers",
        "upgrade": "h2c",
        "x-forwarded-for": "10.0.0.1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "x-request-id": "my-id",
    }
    reply = once(gateway.port, "POST", route.path, headers, ODD_BODY)
    assert (reply.status, reply.header("x-request-id")) == (200, "my-id")
    (request,) = fake.requests
    assert (request.method, request.target) == ("POST", route.engine_path.decode())
    assert hashlib.sha256(request.body).digest() == hashlib.sha256(ODD_BODY).digest()
    assert dict(request.headers) == {
        b"host": f"127.0.0.1:{fake.port}".encode(),
        b"content-length": str(len(ODD_BODY)).encode(),
        b"content-type": b"application/json",
        b"traceparent": headers["traceparent"].encode(),
        b"x-request-id": b"my-id",
    }
    event = gateway.wait_event()
    assert (event["route"], event["outcome"], event["key"]) == (route.path, "ok", "default")


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"authorization: Bearer wrong-0123456789\r\n",
        b"authorization: Bearer caf\xe9\r\n",
        b"authorization: Basic " + KEY.encode() + b"\r\n",
        b"x-api-key: wrong-0123456789\r\n",
        b"cookie: api_key=" + KEY.encode() + b"\r\n",
    ],
)
@ROUTES
def test_no_route_works_without_a_key(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute, lines: bytes
) -> None:
    """B38, B41."""
    target = f"{route.path}?api_key={KEY}".encode()
    with gateway.client() as client:
        client.send(b"POST %b HTTP/1.1\r\nhost: x\r\n%b" % (target, lines))
        client.send(b"content-length: 2\r\n\r\n{}")
        reply = client.read_body(client.read_head())
    assert (reply.status, reply.header("www-authenticate")) == (401, "Bearer")
    assert error_of(reply, route)["type"] == "authentication_error"
    assert not fake.requests


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
@ROUTES
def test_only_post(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute, method: str
) -> None:
    reply = once(gateway.port, method, route.path, AUTH)
    assert (reply.status, reply.header("allow")) == (405, "POST")
    if method != "HEAD":
        assert "POST" in error_of(reply, route)["message"]
    assert not fake.requests


def ways_to_write(path: str) -> list[str]:
    """Paths that another hop could take for this one, and that are not it."""
    first, last = path.rsplit("/", 1)
    encoded = path.replace("/", "%2f")
    return [
        path + "/",
        path + "//",
        path + "%00",
        path + ";x",
        path + "%20",
        path + "/..",
        path.upper(),
        "/" + path,
        f"{first}//{last}",
        f"{first}/./{last}",
        f"{first}/x/../{last}",
        f"{first}/%2e%2e/{last}",
        f"{first}/%252e%252e/{last}",
        f"{first}%5c{last}",
        f"{first}\\{last}",
        f"/{encoded[3:]}",
        f"http://vllm:8000{path}x",
        path.removeprefix("/v1"),
        f"/v2{path[3:]}",
    ]


@ROUTES
def test_a_path_is_written_in_one_way(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute
) -> None:
    """B39."""
    with gateway.client() as client:
        for target in ways_to_write(route.path):
            reply = client.request("POST", target, AUTH, b"{}")
            assert reply.status == 404, target
            assert reply.json()["error"]["message"], target
    assert not fake.requests


def asked(listed: str) -> tuple[str, str]:
    """A request for a listed route of vLLM; a placeholder in the path gets a value."""
    method, path = listed.split(" ", 1)
    path = path.replace("{response_id}", "resp_1").replace("{adapter_name}", "a")
    return {"ANY": "GET", "WEBSOCKET": "GET"}.get(method, method), path


# Paths that the gateway answers itself: nothing of the engine's is behind them.
OWN = {"GET /health", "GET /v1/models", "GET /readyz", "GET /metrics", "ANY /metrics"}


@pytest.mark.parametrize("listed", sorted(DENIED.keys() - OWN))
def test_what_is_denied_is_not_there(fake: FakeVLLM, gateway: GatewayProcess, listed: str) -> None:
    """B38."""
    method, path = asked(listed)
    for headers in ({}, AUTH, {**AUTH, "connection": "upgrade", "upgrade": "websocket"}):
        reply = once(gateway.port, method, path, headers)
        assert (reply.status, reply.json()["error"]["message"]) == (404, "There is no such path.")
    assert not fake.requests


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@pytest.mark.parametrize("path", ["/v1/responses/resp_1", "/v1/messages/batches"])
def test_what_lies_below_a_route_is_not_there(
    fake: FakeVLLM, gateway: GatewayProcess, path: str, method: str
) -> None:
    """B11: stored responses."""
    reply = once(gateway.port, method, path, AUTH)
    assert reply.status == 404
    assert ("type" in reply.json()) == path.startswith("/v1/messages")
    assert not fake.requests


def test_a_probe_of_the_root_is_quick_and_empty(gateway: GatewayProcess) -> None:
    """B12: some clients ask HEAD / before anything else."""
    with gateway.client(timeout_s=2) as client:
        reply = client.request("HEAD", "/")
        assert (reply.status, reply.body) == (404, b"")
        assert client.request("GET", "/livez").status == 200


OPENAI = b'{"error": {"message": "bad", "type": "BadRequestError", "param": null, "code": 400}}'
ANTHROPIC = b'{"type": "error", "error": {"type": "BadRequestError", "message": "bad"}}'
FOREIGN = b'{"detail":"bad"}'


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
@ROUTES
def test_an_engines_error_keeps_its_status(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute, status: int
) -> None:
    """B10, B27: its body too, when it has the form of the API."""
    own = ANTHROPIC if route.api == "anthropic" else OPENAI
    for body in (own, OPENAI, FOREIGN):
        fake.enqueue(*answer(body, status, headers=[("retry-after", "7")]))
        reply = once(gateway.port, "POST", route.path, AUTH, b'{"stream":true}')
        assert (reply.status, reply.header("retry-after")) == (status, "7")
        if body == own:
            assert reply.body == own
        else:
            assert error_of(reply, route)["message"] == "bad"


@ROUTES
def test_numbers_that_are_no_json_come_back(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute
) -> None:
    """B30."""
    body = b'{"logprob": -Infinity, "x": NaN, "usage": null}'
    fake.enqueue(*answer(body))
    assert once(gateway.port, "POST", route.path, AUTH, b'{"temperature": NaN}').body == body


@ROUTES
def test_a_body_that_is_too_large(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute
) -> None:
    """B34."""
    reply = once(gateway.port, "POST", route.path, AUTH, b"x" * (LIMIT + 1))
    assert reply.status == 413
    assert str(LIMIT) in error_of(reply, route)["message"]
    assert not fake.requests


@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        b"content-length: +5\r\n\r\nhello",
    ],
)
@ROUTES
def test_ambiguous_framing_ends_the_connection(
    fake: FakeVLLM, gateway: GatewayProcess, route: EngineRoute, rest: bytes
) -> None:
    """B45."""
    head = f"POST {route.path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n".encode()
    with gateway.client() as client:
        client.send(head + rest + b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        reply = client.read_body(client.read_head())
        assert reply.status == 400
        assert error_of(reply, route)["type"] == "invalid_request_error"
        assert client.at_end()
    assert not fake.requests


def test_no_engine_is_said_in_the_form_of_each_route(start: Start) -> None:
    """Refused connections, and an answer that breaks off before it began."""
    with FakeVLLM() as fake:
        gateway = start(fake.url, hold_s=0.1)
        gateway.wait_ready()
        for route in ENGINE_ROUTES:
            fake.enqueue(Fin())
            reply = once(gateway.port, "POST", route.path, AUTH, b"{}")
            assert reply.status == 502, route.path
            assert error_of(reply, route)["type"] in {"api_error", "server_error"}
        fake.stop_listening(reset=True)
        for route in ENGINE_ROUTES:
            reply = once(gateway.port, "POST", route.path, AUTH, b"{}")
            assert (reply.status, reply.header("retry-after")) == (503, "10"), route.path
            assert error_of(reply, route)["type"] in {"overloaded_error", "server_error"}


def replay(events: list[bytes], *end: Step) -> Script:
    return (Send(sse_head()), *(Send(chunk(event)) for event in events), *end)


ROUTE_OF = {"completions_stream": "/v1/completions", "chat_stream": "/v1/chat/completions"}
RECORDED = [
    (ROUTE_OF.get(name, f"/v1/{ending}"), ending, name)
    for ending, names in STREAMS.items()
    for name in names
]
STREAMED = pytest.mark.parametrize(("path", "ending", "name"), RECORDED)


@STREAMED
def test_a_real_stream_comes_through(
    fake: FakeVLLM, gateway: GatewayProcess, path: str, ending: str, name: str
) -> None:
    """B11, B12: vLLM's own bytes, and an ending that is known as one."""
    events = capture(name).events
    fake.enqueue(*replay(events, Send(chunk(b""))))
    reply = once(gateway.port, "POST", path, AUTH, WITH_USAGE)
    assert (reply.whole, reply.body) == (True, capture(name).body)
    event = gateway.wait_event()
    assert (event["outcome"], event["stream"], event["frames"]) == ("ok", True, len(events))


@pytest.mark.parametrize("end", [Send(chunk(b"")), Fin(), Reset()], ids=["whole", "fin", "rst"])
@STREAMED
def test_a_stream_without_its_ending_gets_an_error_event(
    fake: FakeVLLM, gateway: GatewayProcess, path: str, ending: str, name: str, end: Step
) -> None:
    """B9, B11: in the words of the API, and nothing that looks like an ending."""
    events = capture(name).events[:2]
    fake.enqueue(*replay(events, end))
    reply = once(gateway.port, "POST", path, AUTH, WITH_USAGE)
    assert reply.whole
    assert reply.body.startswith(b"".join(events))
    last = reply.body.removeprefix(b"".join(events))
    named = ending in {"responses", "messages"}
    assert last.startswith(b"event: error\ndata: " if named else b"data: ")
    assert last.endswith(b"\n\n")
    value = json.loads(last.partition(b"data: ")[2])
    assert value["error"]["message"]
    assert (value.get("type") == "error") == named
    if ending == "responses":
        assert value["sequence_number"] == 2
    assert gateway.wait_event()["outcome"] == "truncated"


@STREAMED
def test_a_half_event_is_closed_before_the_error(
    fake: FakeVLLM, gateway: GatewayProcess, path: str, ending: str, name: str
) -> None:
    first, second = capture(name).events[:2]
    half = second[: len(second) // 2]
    fake.enqueue(*replay([first, half], Reset()))
    reply = once(gateway.port, "POST", path, AUTH, WITH_USAGE)
    assert reply.body.startswith(first + half + b"\n\n")
    event = reply.body.removeprefix(first + half + b"\n\n")
    assert json.loads(event.partition(b"data: ")[2])["error"]["message"]
    assert gateway.wait_event()["outcome"] == "truncated"


def form(boundary: bytes, *fields: tuple[bytes, bytes]) -> bytes:
    """A multipart body; each field: the parameters of its disposition, and its value."""
    parts = [
        b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (boundary, *field)
        for field in fields
    ]
    return b"".join([*parts, b"--%b--\r\n" % boundary])


@pytest.mark.parametrize(
    "path", [route.path for route in ENGINE_ROUTES if route.body == "multipart"]
)
def test_a_form_goes_through_as_it_is(start: Start, path: str) -> None:
    """B36: 3 MiB in chunks, with CRLF and dashes in it and a name that needs care."""
    noise = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(98_304 - 5))
    file = noise + b"\r\n--not-the-boundary\r\n--\r\n"
    name = 'name="file"; filename="a\\"b é.wav"'.encode()
    body = form(b"x--y", (b'name="model"', b"whisper-x"), (b'name="stream"', b"true"), (name, file))
    headers = {
        **AUTH,
        "content-type": "multipart/form-data; boundary=x--y",
        "transfer-encoding": "chunked",
    }
    with FakeVLLM(Behaviour(models=("whisper-x",))) as fake:
        gateway = start(fake.url, max_body_bytes=1 << 23)
        gateway.wait_ready()
        head = build("POST", path, headers, b"").replace(b"content-length: 0\r\n", b"")
        with Client(gateway.port) as client:
            client.send(head)
            for at in range(0, len(body), 50_001):
                client.send(chunk(body[at : at + 50_001]))
            client.send(chunk(b""))
            assert client.read_body(client.read_head()).status == 200
        (request,) = fake.requests
    assert request.body == body
    assert request.target == path
    assert request.header("content-type") == b"multipart/form-data; boundary=x--y"
    assert request.header("authorization") is None


MANY_KEYS = f"""
[[key]]
name = "some"
key = "{KEY}"
models = ["m"]
"""


def test_a_key_for_some_models_is_held_to_them_everywhere(tmp_path: Path, start: Start) -> None:
    boundary = {"content-type": "multipart/form-data; boundary=b"}
    with FakeVLLM() as fake:
        gateway = start(fake.url, keys_file=write_keys(tmp_path, MANY_KEYS))
        gateway.wait_ready()
        for route in ENGINE_ROUTES:
            for model, status in (("m", 200), ("other", 403), (None, 200)):
                body = json.dumps({"model": model} if model else {}).encode()
                headers = AUTH
                if route.body == "multipart":
                    fields = [(b'name="model"', model.encode())] if model else []
                    body, headers = form(b"b", (b'name="a"', b"x"), *fields), {**AUTH, **boundary}
                reply = once(gateway.port, "POST", route.path, headers, body)
                assert reply.status == status, (route.path, model)
                if status == 403:
                    assert error_of(reply, route)["type"] == "permission_error"
        assert len(fake.requests) == 2 * len(ENGINE_ROUTES)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_openais_client_raises_what_the_error_event_says(
    fake: FakeVLLM, gateway: GatewayProcess, api: str
) -> None:
    """B9: an event that it only hands on would look like the end of the answer."""
    events = capture(f"{api}_stream").events[:2]
    fake.enqueue(*replay(events, Reset()))
    url = f"http://127.0.0.1:{gateway.port}/v1"
    with openai.OpenAI(api_key=KEY, base_url=url, max_retries=0) as client:
        ask = {
            "chat": lambda: client.chat.completions.create(model="m", messages=[], stream=True),
            "responses": lambda: client.responses.create(model="m", input="x", stream=True),
        }
        with (
            ask[api]() as stream,
            pytest.raises(openai.APIError, match="closed the connection") as raised,
        ):
            list(stream)
    assert raised.value.code == "upstream_error"
