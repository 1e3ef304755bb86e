"""A page's way through the real nginx: to the gateway, and nginx's own errors (B35)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.front import MAX_BODY, Front
from common.rawhttp import Reply, once
from common.servers import AUTH, CHAT, GatewayProcess, write_keys

APP = "https://app.example"
DEV = "http://localhost:5173"
ORIGINS = f"{APP}, {DEV}"
ASK = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}

Open = Callable[[str], Front]


@pytest.fixture
def behind(tmp_path: Path, fake: FakeVLLM) -> Iterator[Callable[[str], Front]]:
    """nginx, the gateway and the engine, with these origins."""
    with ExitStack() as stack:

        def start(origins: str) -> Front:
            keys = write_keys(tmp_path)
            gateway = GatewayProcess(keys, fake.url, cors_origins=origins, hold_s=0)
            stack.enter_context(gateway).wait_ready()
            fake.clear()
            front = Front(tmp_path / "front", f"127.0.0.1:{gateway.port}", origins=origins)
            return stack.enter_context(front)

        yield start


def grants(reply: Reply) -> list[str]:
    return [value for name, value in reply.headers if name == "access-control-allow-origin"]


def own_errors(front: Front, origin: str) -> Iterator[Reply]:
    """nginx's: a route it does not know, a body that is too large, a path it does not pass on."""
    headers = {"origin": origin}
    yield once(front.port, "GET", "/metrics", headers)
    yield once(front.port, "POST", CHAT, {**headers, "content-length": str(MAX_BODY + 1)})
    yield once(front.port, "GET", "/v1/..%2fmetrics", headers)


@pytest.mark.parametrize("origin", [APP, DEV])
def test_each_answer_grants_once(behind: Open, fake: FakeVLLM, origin: str) -> None:
    front = behind(ORIGINS)
    asked = once(front.port, "OPTIONS", CHAT, {"origin": origin, **ASK})
    assert (asked.status, grants(asked)) == (204, [origin])
    assert asked.header("access-control-allow-methods") == "POST"
    refused = once(front.port, "POST", CHAT, {"origin": origin}, b"{}")
    assert (refused.status, grants(refused)) == (401, [origin])
    assert not fake.requests
    headers = {"origin": origin, **AUTH}
    answered = once(front.port, "POST", CHAT, headers, b'{"stream":true}')
    assert (answered.status, grants(answered), answered.whole) == (200, [origin], True)
    for reply in own_errors(front, origin):
        assert reply.status in {404, 413}
        assert grants(reply) == [origin]
        assert reply.header("access-control-expose-headers") == answered.header(
            "access-control-expose-headers"
        )
        assert reply.header("vary") == "Origin"


def test_502_can_be_read_too(tmp_path: Path) -> None:
    with Front(tmp_path, "127.0.0.1:9", origins=ORIGINS) as front:
        reply = once(front.port, "POST", CHAT, {"origin": APP}, b"{}")
    assert (reply.status, grants(reply)) == (502, [APP])


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://app.example.evil.example",
        "https://app.exampl",
        "ttps://app.example",
        f"{APP}:443",
        f"{APP},",
        f",{APP},",
        f",{APP},|{APP}",
        f"x|{APP}",
        ORIGINS,
        "null",
        "none",
        "*",
    ],
)
def test_nginx_grants_nothing_to_others(tmp_path: Path, origin: str) -> None:
    with Front(tmp_path, "127.0.0.1:9", origins=ORIGINS) as front:
        for reply in own_errors(front, origin):
            assert grants(reply) == []
            assert reply.header("access-control-expose-headers") is None
            assert reply.header("vary") == "Origin"


def test_any_origin(behind: Open) -> None:
    front = behind("*")
    for reply in (once(front.port, "GET", "/livez", {"origin": APP}), *own_errors(front, APP)):
        assert grants(reply) == ["*"]
        assert reply.header("vary") is None
    assert grants(once(front.port, "GET", "/metrics")) == []


def test_off_unless_set(tmp_path: Path) -> None:
    with Front(tmp_path, "127.0.0.1:9") as front:
        for origin in (APP, "none", "*"):
            for reply in own_errors(front, origin):
                assert grants(reply) == []
                assert reply.header("vary") is None
