"""CORS through the real process: every kind of answer, with and without the setting (B35)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.rawhttp import Reply, once
from common.script import answer
from common.servers import AUTH, CHAT, GatewayProcess, wait_until

from gateway.routes.table import ENGINE_ROUTES

APP = "https://app.example"
EVIL = "https://evil.example"
PATHS = [*(route.path for route in ENGINE_ROUTES), "/v1/models", "/v1/models/org/m", "/status"]
ASK = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


@pytest.fixture(scope="module")
def shared(shared_fake: FakeVLLM, keys: Path) -> Iterator[GatewayProcess]:
    origins = f"{APP}, http://localhost:5173"
    gateway = GatewayProcess(
        keys, shared_fake.url, cors_origins=origins, max_body_bytes=2048, hold_s=0.2
    )
    with gateway:
        gateway.wait_ready()
        yield gateway


@pytest.fixture
def open_gateway(shared: GatewayProcess, fake: FakeVLLM) -> GatewayProcess:
    """With CORS; `fake` has an empty log."""
    wait_until(lambda: shared.status()["gateway"]["in_flight"] == 0)
    fake.clear()
    return shared


def cors_headers(reply: Reply) -> dict[str, str]:
    found = dict(reply.headers)
    assert len([1 for name, _ in reply.headers if name == "access-control-allow-origin"]) <= 1
    return {name: value for name, value in found.items() if name.startswith("access-control-")}


def preflight(port: int, path: str, origin: str, **more: str) -> Reply:
    return once(port, "OPTIONS", path, {"origin": origin, **ASK, **more})


@pytest.mark.parametrize(
    "path", [*(route.path for route in ENGINE_ROUTES), "/v1/models", "/status"]
)
def test_a_preflight_needs_no_key_and_goes_nowhere(
    open_gateway: GatewayProcess, fake: FakeVLLM, path: str
) -> None:
    reply = preflight(open_gateway.port, path, APP)
    assert (reply.status, reply.body) == (204, b"")
    found = cors_headers(reply)
    method = "POST" if path in {route.path for route in ENGINE_ROUTES} else "GET"
    assert found["access-control-allow-origin"] == APP
    assert found["access-control-allow-methods"] == method
    assert found["access-control-allow-headers"] == "authorization"
    assert "access-control-max-age" in found
    assert "access-control-allow-credentials" not in found
    assert reply.header("vary") == "Origin"
    assert reply.header("x-request-id")
    assert not fake.requests


def test_a_preflight_of_another_origin_is_refused(
    open_gateway: GatewayProcess, fake: FakeVLLM
) -> None:
    reply = preflight(open_gateway.port, CHAT, EVIL)
    assert (reply.status, reply.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert cors_headers(reply) == {}
    assert not fake.requests


def test_a_preflight_of_no_route_is_404(open_gateway: GatewayProcess) -> None:
    reply = preflight(open_gateway.port, "/v1/none", APP)
    assert reply.status == 404
    assert cors_headers(reply)["access-control-allow-origin"] == APP


@pytest.mark.parametrize("headers", [{}, {"origin": APP}, ASK])
def test_options_that_is_no_preflight_is_405(
    open_gateway: GatewayProcess, headers: dict[str, str]
) -> None:
    reply = once(open_gateway.port, "OPTIONS", CHAT, headers)
    assert (reply.status, reply.header("allow")) == (405, "POST")


def every_answer(gateway: GatewayProcess, fake: FakeVLLM, origin: str) -> Iterator[Reply]:
    """One of each kind that a page can meet."""

    def chat(headers: dict[str, str], body: bytes = b"{}") -> Reply:
        return once(gateway.port, "POST", CHAT, {"origin": origin, **headers}, body)

    def get(path: str, **headers: str) -> Reply:
        return once(gateway.port, "GET", path, {"origin": origin, **headers})

    yield chat({})
    yield chat(AUTH, b"x" * 4096)
    yield get(CHAT)
    yield get("/nowhere")
    yield get("/v1/models", **AUTH)
    yield get("/v1/models/none", **AUTH)
    yield get("/readyz")
    yield chat(AUTH)
    yield chat(AUTH, b'{"stream":true}')
    for status in (400, 429, 500, 503):
        fake.enqueue(*answer({"error": {"message": "no"}}, status))
        yield chat(AUTH)


STATUSES = [401, 413, 405, 404, 200, 404, 200, 200, 200, 400, 429, 500, 503]


def test_every_answer_can_be_read_by_the_page(open_gateway: GatewayProcess, fake: FakeVLLM) -> None:
    statuses = []
    for reply in every_answer(open_gateway, fake, APP):
        statuses.append(reply.status)
        found = cors_headers(reply)
        assert found["access-control-allow-origin"] == APP, reply.status
        assert "x-request-id" in found["access-control-expose-headers"], reply.status
        assert "Origin" in (reply.header("vary") or ""), reply.status
    assert statuses == STATUSES


def test_another_origin_gets_answers_without_a_grant(
    open_gateway: GatewayProcess, fake: FakeVLLM
) -> None:
    for reply in every_answer(open_gateway, fake, EVIL):
        assert cors_headers(reply) == {}
        assert "Origin" in (reply.header("vary") or ""), reply.status


def test_503_while_nothing_is_ready(keys: Path) -> None:
    with GatewayProcess(keys, "http://127.0.0.1:9", cors_origins=APP, hold_s=0) as gateway:
        reply = gateway.chat(origin=APP)
    assert reply.status == 503
    assert cors_headers(reply)["access-control-allow-origin"] == APP
    assert "retry-after" in cors_headers(reply)["access-control-expose-headers"]


def test_any_origin_without_credentials(fake: FakeVLLM, keys: Path) -> None:
    with GatewayProcess(keys, fake.url, cors_origins="*") as gateway:
        gateway.wait_ready()
        for reply in (preflight(gateway.port, CHAT, EVIL), gateway.chat(origin=EVIL)):
            found = cors_headers(reply)
            assert found["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in found
        assert cors_headers(gateway.chat()) == {}


def test_off_unless_set(gateway: GatewayProcess, fake: FakeVLLM) -> None:
    reply = preflight(gateway.port, CHAT, APP)
    assert (reply.status, reply.header("allow")) == (405, "POST")
    for other in (
        reply,
        gateway.chat(origin=APP),
        once(gateway.port, "GET", "/x", {"origin": APP}),
    ):
        assert cors_headers(other) == {}
        assert other.header("vary") is None
