"""The table of routes against the real CPU engine: what it registers, and what it answers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from common.captures import STREAMS, capture
from common.engine import Running, embedded_model, get
from common.rawhttp import Reply, once
from common.servers import AUTH, KEY, GatewayProcess, write_keys

from gateway.routes.denied import DENIED
from gateway.routes.table import ENGINE_ROUTES

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
FORWARDED = {f"POST {route.engine_path.decode()}" for route in ENGINE_ROUTES}
USER = [{"role": "user", "content": "Say hello."}]


def test_the_list_of_this_version_is_whole(engine_python: str) -> None:
    """What the application really has when everything is on, all of it in the list."""
    done = subprocess.run(
        [engine_python, str(Path(__file__).with_name("list_routes_with_vllm.py"))],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    found = json.loads(done.stdout.splitlines()[-1])
    listed = json.loads((ROOT / f"tests/data/vllm_routes/{found['version']}.json").read_text())
    assert len(found["routes"]) > 50
    assert not set(found["routes"]) - set(listed["routes"])
    assert not set(found["routes"]) - FORWARDED - DENIED.keys()


@pytest.fixture(scope="module")
def engine(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("engine")
    running = Running(engine_python, folder, embedded_model(engine_python, folder))
    try:
        running.until_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def gateway(engine: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    keys = write_keys(tmp_path_factory.mktemp("keys"))
    with GatewayProcess(keys, engine.engine) as process:
        process.wait_ready()
        yield process


def ask(gateway: GatewayProcess, path: str, body: object, **headers: str) -> Reply:
    with gateway.client(timeout_s=120) as client:
        return client.request("POST", path, {**AUTH, **headers}, body)


def schema(engine: Running) -> set[str]:
    paths = get(f"{engine.engine}/openapi.json")["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def test_each_route_of_the_running_engine_is_decided(engine: Running) -> None:
    found = schema(engine)
    assert "POST /v1/messages" in found
    assert not found - FORWARDED - DENIED.keys()


def test_what_the_engine_has_is_there_and_what_it_has_not_is_said(
    engine: Running, gateway: GatewayProcess
) -> None:
    """A chat model: neither embeddings nor audio. The rest refuses an empty body itself."""
    has = schema(engine)
    for route in ENGINE_ROUTES:
        reply = ask(gateway, route.path, b"{}")
        error = reply.json()["error"]
        assert ("type" in reply.json()) == (route.api == "anthropic"), route.path
        if f"POST {route.engine_path.decode()}" in has:
            assert reply.status == 400, (route.path, reply.body)
            assert error["message"], route.path
        else:
            assert reply.status == 404, (route.path, reply.body)
            assert "no such route" in error["message"], route.path


@pytest.mark.parametrize("listed", sorted(DENIED.keys() - {"GET /health", "GET /v1/models"}))
def test_what_is_denied_does_not_reach_it(gateway: GatewayProcess, listed: str) -> None:
    method, path = listed.split(" ", 1)
    method = {"ANY": "GET", "WEBSOCKET": "GET"}.get(method, method)
    reply = once(gateway.port, method, path, AUTH)
    if path in {"/readyz", "/metrics"}:  # the gateway's own
        assert b"vllm:" not in reply.body
    else:
        assert reply.json()["error"]["message"] == "There is no such path."


def test_tokens_are_counted_and_made(gateway: GatewayProcess) -> None:
    made = ask(gateway, "/v1/tokenize", {"prompt": "Hello world"}).json()
    assert made["count"] == len(made["tokens"]) == 2
    back = ask(gateway, "/v1/detokenize", {"tokens": made["tokens"]}).json()
    assert back["prompt"] == "Hello world"
    counted = ask(gateway, "/v1/messages/count_tokens", {"model": "default", "messages": USER})
    assert counted.json()["input_tokens"] == 33


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat_stream": (
        "/v1/chat/completions",
        {"messages": USER, "max_tokens": 3, "stream_options": {"include_usage": True}},
    ),
    "completions_stream": (
        "/v1/completions",
        {"prompt": "Hello", "max_tokens": 3, "stream_options": {"include_usage": True}},
    ),
    "responses_stream": ("/v1/responses", {"input": "Say hello.", "max_output_tokens": 3}),
    "messages_stream": ("/v1/messages?beta=true", {"messages": USER, "max_tokens": 3}),
}


def shape(body: bytes) -> list[tuple[bytes, object]]:
    """Of each event its name and the keys of its data."""
    found = []
    for event in body.split(b"\n\n")[:-1]:
        name, _, data = event.rpartition(b"data: ")
        found.append((name, "DONE" if data == b"[DONE]" else sorted(json.loads(data))))
    return found


@pytest.mark.parametrize("name", sorted(BODIES))
def test_streams_are_as_recorded_and_end_well(gateway: GatewayProcess, name: str) -> None:
    """B11, B12: the recordings that the other tests replay are what the engine says today."""
    path, body = BODIES[name]
    assert any(name in names for names in STREAMS.values())
    gateway.mark()
    asked = {"model": "default", "temperature": 0, "stream": True, **body}
    reply = ask(gateway, path, asked, **{"anthropic-version": "2023-06-01"})
    assert (reply.status, reply.whole) == (200, True)
    assert shape(reply.body) == shape(capture(name).body)
    assert gateway.wait_event()["outcome"] == "ok"


ONE_TOKEN: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "The sea is"},
}
# Alone, usage in every chunk has no effect in vLLM, and so it has none here.
STREAM_OPTIONS: list[dict[str, Any]] = [
    {},
    {"stream_options": None},
    {"stream_options": {"include_usage": False}},
    {"stream_options": {"continuous_usage_stats": True}},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
]


@pytest.mark.parametrize("options", STREAM_OPTIONS, ids=str)
@pytest.mark.parametrize("path", ONE_TOKEN)
def test_the_usage_we_ask_for_changes_nothing_else(
    engine: Running, gateway: GatewayProcess, path: str, options: dict[str, Any]
) -> None:
    """B7: one token, since a busy vLLM may put several into one event."""
    body = {**ONE_TOKEN[path], "max_tokens": 1, "temperature": 0, "stream": True, **options}
    gateway.mark()
    ours = ask(gateway, path, body)
    direct = once(int(engine.engine.rpartition(":")[2]), "POST", path, {}, body)
    assert (ours.status, direct.status) == (200, 200)
    assert comparable(ours.body) == comparable(direct.body)
    line = gateway.wait_event()
    assert line["completion_tokens"] == 1
    assert not line["tokens_estimated"]


def comparable(body: bytes) -> bytes:
    """Without what differs between any two answers, and without the fingerprint, which vLLM writes
    into the last chunk: that is the usage chunk where there is one.
    """
    body = re.sub(rb'"id":"[^"]*"', b'"id":""', body)
    body = re.sub(rb'"created":[0-9]+', b'"created":0', body)
    return re.sub(rb',"system_fingerprint":"[^"]*"', b"", body)


def test_an_anthropic_client_with_its_own_header(gateway: GatewayProcess) -> None:
    messages = [*USER, {"role": "system", "content": "Be brief."}]
    body = {"model": "default", "max_tokens": 3, "messages": messages}
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    with gateway.client(timeout_s=120) as client:
        reply = client.request("POST", "/v1/messages", headers, body)
    assert reply.json()["type"] == "message"
    assert reply.json()["usage"]["output_tokens"] <= 3
