"""Who and what gets in: keys, paths, methods, sizes, malformed HTTP; the rest stays outside."""

from __future__ import annotations

import re

import pytest
from common.fake_vllm import FakeVLLM
from common.rawhttp import Client, Reply, build, once
from common.script import chunk
from common.servers import AUTH, CHAT, KEY, GatewayProcess

GOOD = f"Bearer {KEY}".encode()
LIMIT = 1 << 21


def with_authorization(gateway: GatewayProcess, *values: bytes) -> Reply:
    lines = b"".join(b"authorization: " + value + b"\r\n" for value in values)
    with gateway.client() as client:
        client.send(b"POST %b HTTP/1.1\r\nhost: x\r\n" % CHAT.encode() + lines)
        client.send(b"content-length: 2\r\n\r\n{}")
        return client.read_body(client.read_head())


@pytest.mark.parametrize(
    "values",
    [
        (),
        (b"Bearer caf\xe9",),
        (b"Bearer \xe2\x80\x9c" + KEY.encode() + b"\xe2\x80\x9d",),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer" + KEY.encode(),),
        (b"Basic " + KEY.encode(),),
        (GOOD + b" extra",),
        (GOOD + b"x",),
        (GOOD[:-1],),
        (b"Bearer wrong-0123456789", GOOD),
        (GOOD, b"Bearer wrong-0123456789"),
        (GOOD, GOOD),
        (b"Bearer " + b"a" * 20_480,),
        (GOOD + b", " + GOOD,),
    ],
)
def test_only_one_well_formed_key_passes(
    fake: FakeVLLM, gateway: GatewayProcess, values: tuple[bytes, ...]
) -> None:
    """B41."""
    reply = with_authorization(gateway, *values)
    assert reply.status == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"
    assert reply.header("www-authenticate") == "Bearer"
    assert not fake.requests


@pytest.mark.parametrize(
    "value", [GOOD, GOOD.replace(b"Bearer", b"bearer"), b"BEARER  " + GOOD[7:]]
)
def test_the_scheme_has_no_case(fake: FakeVLLM, gateway: GatewayProcess, value: bytes) -> None:
    assert with_authorization(gateway, value).status == 200


@pytest.mark.parametrize("query", [f"?api_key={KEY}", f"?key={KEY}"])
def test_a_key_in_the_query_is_no_key(gateway: GatewayProcess, query: str) -> None:
    """B47."""
    assert once(gateway.port, "POST", CHAT + query, {}, b"{}").status == 401


def test_a_query_is_not_forwarded(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    assert once(gateway.port, "POST", f"{CHAT}?a=b", AUTH, b"{}").status == 200
    assert fake.requests[0].target == CHAT


POSTS = """/invocations /tokenize /detokenize /pooling /classify /score /rerank /sleep /wake_up
    /collective_rpc /reset_prefix_cache /v1/load_lora_adapter /v1/unload_lora_adapter
    /inference/v1/generate /v1/chat/completions/render /scale_elastic_ep"""
GETS = "/load /version /server_info /openapi.json /docs /redoc /ping /"
REQUESTS = [*(("POST", path) for path in POSTS.split()), *(("GET", path) for path in GETS.split())]


@pytest.mark.parametrize("headers", [{}, AUTH])
@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_what_is_not_on_the_list_is_not_there(
    fake: FakeVLLM, gateway: GatewayProcess, method: str, path: str, headers: dict[str, str]
) -> None:
    """B38."""
    reply = once(gateway.port, method, path, headers, b"{}" if method == "POST" else b"")
    assert (reply.status, reply.json()["error"]["code"]) == (404, "not_found")
    assert not fake.requests


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "target",
    [
        "/v1/../metrics",
        "/v1/%2e%2e/metrics",
        "/v1/..%2fmetrics",
        "/v1/%252e%252e/metrics",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/v1/chat%2fcompletions",
        "/v1/chat%5ccompletions",
        "/v1/x/../chat/completions",
        "/v1/%2e/chat/completions",
        "/V1/models",
        "/v1/Chat/completions",
        "/v1/models%00",
        "/v1/models;x",
        "/v1/models/",
        "/v1\\metrics",
        "http://vllm:8000/version",
        "//v1/models",
    ],
)
def test_ambiguous_paths_lead_nowhere(
    fake: FakeVLLM, gateway: GatewayProcess, target: str, method: str
) -> None:
    """B39."""
    reply = once(gateway.port, method, target, AUTH, b"{}" if method == "POST" else b"")
    assert reply.status == 404
    assert reply.json()["error"]["message"]
    assert not fake.requests


def test_an_encoded_letter_is_the_letter(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """The decoded path decides; the engine gets our constant, not the client's bytes."""
    assert once(gateway.port, "POST", "/v1/%63hat/completions", AUTH, b"{}").status == 200
    assert fake.requests[0].target == CHAT


@pytest.mark.parametrize("target", ["*", "/v1/%zz", "/v1/\xe9"])
def test_odd_targets_are_refused_in_json(
    fake: FakeVLLM, gateway: GatewayProcess, target: str
) -> None:
    with gateway.client() as client:
        client.send(f"OPTIONS {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode("latin-1"))
        reply = client.read_body(client.read_head())
    assert reply.status in {400, 404}
    assert reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("PUT", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("HEAD", "/v1/models", "GET"),
        ("DELETE", "/v1/models/m", "GET"),
        ("POST", "/status", "GET"),
        ("HEAD", "/livez", "GET"),
    ],
)
def test_wrong_methods(
    fake: FakeVLLM, gateway: GatewayProcess, method: str, path: str, allowed: str
) -> None:
    headers = {"origin": "https://x.example", "access-control-request-method": "POST"}
    reply = once(gateway.port, method, path, headers)
    assert (reply.status, reply.header("allow")) == (405, allowed)
    assert reply.header("access-control-allow-origin") is None
    if method != "HEAD":
        assert reply.json()["error"]["code"] == "method_not_allowed"
    assert not fake.requests


def test_models_are_answered_here(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """As the engine lists them; an unknown one names what is served."""
    assert once(gateway.port, "GET", "/v1/models").status == 401
    listed = once(gateway.port, "GET", "/v1/models", AUTH).json()
    assert listed == {"object": "list", "data": [{"id": "m", "object": "model"}]}
    one = once(gateway.port, "GET", "/v1/models/m", AUTH)
    assert one.json() == {"id": "m", "object": "model"}
    other = once(gateway.port, "GET", "/v1/models/a/b%2Fc", AUTH)
    assert (other.status, other.json()["error"]["code"]) == (404, "model_not_found")
    assert "Served: m." in other.json()["error"]["message"]
    assert not fake.requests


def test_one_byte_too_many_with_a_length(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B34: the connection stays usable for those who send the rest anyway."""
    with gateway.client() as client:
        reply = client.request("POST", CHAT, AUTH, b"x" * (LIMIT + 1))
        assert (reply.status, reply.json()["error"]["code"]) == (413, "body_too_large")
        whole = b'{"pad":"%b"}' % (b"x" * (LIMIT - 10))
        assert client.request("POST", CHAT, AUTH, whole).status == 200
    assert len(fake.requests) == 1


def test_one_byte_too_many_in_chunks(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    head = build("POST", CHAT, {**AUTH, "transfer-encoding": "chunked"}, b"")
    head = head.replace(b"content-length: 0\r\n", b"")
    with gateway.client() as client:
        client.send(head + chunk(b"x" * LIMIT) + chunk(b"x") + chunk(b""))
        assert client.read_body(client.read_head()).status == 413
    assert not fake.requests


def test_a_huge_declared_length(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    headers = {**AUTH, "content-length": "99999999999", "expect": "100-continue"}
    with gateway.client() as client:
        client.send(build("POST", CHAT, headers, b""))
        assert client.read_body(client.read_head()).status == 413


@pytest.mark.parametrize("body", [b"[" * 300_000, b'{"a":' * 100_000, b"", b"[]", b"1", b'{"a"'])
def test_a_body_that_is_no_json_object(
    body: bytes, fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    """B34: a 400, no crash, and no engine is troubled."""
    reply = gateway.chat(body)
    assert (reply.status, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert not fake.requests


START = b"POST %b HTTP/1.1\r\nhost: x\r\nauthorization: %b\r\n" % (CHAT.encode(), GOOD)
NEXT = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        b"transfer-encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"content-length: +5\r\n\r\nhello",
        b"content-length: 5 5\r\n\r\nhello",
        b"transfer-encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"transfer-encoding: \x0bchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        b"x: a\rb\r\n\r\n",
    ],
)
def test_smuggling_shapes_get_one_400_and_a_close(
    fake: FakeVLLM, gateway: GatewayProcess, rest: bytes
) -> None:
    """B45."""
    with gateway.client() as client:
        client.send(START + rest + NEXT)
        reply = client.read_body(client.read_head())
        assert reply.status == 400
        assert reply.json()["error"]["message"]
        assert client.at_end()
    assert not fake.requests


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nx: " + b"a" * 400_000,
        b"GET / HTTP/1.1\r\n" + b"x: aaaaaaaaaa\r\n" * 20_000,
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
        + b"x: aaaaaaaaaa\r\n" * 20_000,
    ],
    ids=["target", "header", "headers", "trailers"],
)
def test_endless_heads_are_refused(gateway: GatewayProcess, endless: bytes) -> None:
    """Rule 5."""
    with Client(gateway.port) as client:
        statuses = []
        try:
            client.send(endless)
            while True:
                statuses.append(client.read_body(client.read_head()).status)
        except ConnectionError:
            pass
    assert set(statuses) <= {400, 404}
    assert once(gateway.port, "GET", "/livez").status == 200


def test_pipelined_requests_are_answered_in_order(gateway: GatewayProcess) -> None:
    with gateway.client() as client:
        client.send(
            build("POST", CHAT, AUTH, b'{"stream":true}') + build("POST", CHAT, AUTH, b"{}")
        )
        first = client.read_body(client.read_head())
        second = client.read_body(client.read_head())
    assert first.body.endswith(b"data: [DONE]\n\n")
    assert second.json()["object"] == "chat.completion"


def test_every_line_of_the_log_is_json(gateway: GatewayProcess) -> None:
    gateway.chat(b"{}")
    event = gateway.wait_event()
    assert event["route"] == CHAT
    assert re.fullmatch(r"[0-9a-f]{24}", event["request_id"])
    assert (event["key"], event["status"], event["outcome"]) == ("default", 200, "ok")
