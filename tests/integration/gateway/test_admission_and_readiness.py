"""Queue, hold, re-send, several engines: what is answered when the stack cannot serve at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from common.fake_vllm import Behaviour, FakeVLLM
from common.net import free_port
from common.rawhttp import Client, build, once
from common.script import Fin, Pause, Send, Step, answer, sse_head
from common.servers import AUTH, CHAT, KEY, GatewayProcess, wait_until, write_keys

Start = Callable[..., GatewayProcess]
STREAM = b'{"stream":true}'


def send_and_wait(gateway: GatewayProcess, client: Client, in_flight: int, queued: int) -> None:
    client.send(build("POST", CHAT, AUTH, STREAM))
    wanted = {"in_flight": in_flight, "queued": queued}
    wait_until(lambda: wanted.items() <= gateway.status()["gateway"].items())


def test_a_full_queue_and_a_long_one_are_answered(fake: FakeVLLM, start: Start) -> None:
    """Rule 6: 503 with Retry-After, at once when the room is full."""
    gateway = start(fake.url, max_concurrency=1, queue_size=1, queue_timeout_s=1.5)
    gateway.wait_ready()
    fake.enqueue(Send(sse_head()), Pause(30))
    with gateway.client() as running, gateway.client() as waiting:
        send_and_wait(gateway, running, 1, 0)
        send_and_wait(gateway, waiting, 1, 1)
        began = time.monotonic()
        full = gateway.chat()
        assert time.monotonic() - began < 1
        late = waiting.read_body(waiting.read_head())
    for reply in (full, late):
        assert (reply.status, reply.json()["error"]["code"]) == (503, "overloaded")
        assert int(reply.header("retry-after") or 0) > 0
    assert len(fake.requests) == 1


def test_the_queue_is_first_come_first_served(fake: FakeVLLM, start: Start) -> None:
    gateway = start(fake.url, max_concurrency=1)
    gateway.wait_ready()
    fake.enqueue(Pause(0.5), *answer())
    with gateway.client() as a, gateway.client() as b, gateway.client() as c:
        for number, client in enumerate((a, b, c)):
            client.send(build("POST", CHAT, {**AUTH, "x-request-id": f"r{number}"}, b"{}"))
            wait_until(lambda n=number: gateway.status()["gateway"]["queued"] == n)  # type: ignore[misc]
        for client in (a, b, c):
            assert client.read_body(client.read_head()).status == 200
    assert [one.header("x-request-id") for one in fake.requests] == [b"r0", b"r1", b"r2"]


def test_requests_are_held_until_the_engine_is_ready(start: Start) -> None:
    """Rule 7."""
    with FakeVLLM(Behaviour(health=503)) as fake:
        gateway = start(fake.url, hold_s=10)
        with gateway.client() as client, gateway.client() as models:
            send_and_wait(gateway, client, 0, 1)
            models.send(build("GET", "/v1/models", AUTH, b""))
            assert not fake.requests
            fake.behaviour.health = 200
            assert client.read_body(client.read_head()).status == 200
            assert models.read_body(models.read_head()).json()["data"][0]["id"] == "m"


def test_who_asks_for_models_may_leave_while_held(start: Start) -> None:
    """Rule 4, where no slot is taken."""
    gateway = start(f"http://127.0.0.1:{free_port()}", hold_s=60)
    with gateway.client() as client:
        client.send(build("GET", "/v1/models", AUTH, b""))
        wait_until(lambda: gateway.status()["engines"])
    line = gateway.wait_event()
    assert (line["route"], line["outcome"], line["status"]) == ("/v1/models", "client_left", None)


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (b"GET /v1/models HTTP/1.1\r\n", b""),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 9\r\n", b"{"),
    ],
)
def test_what_waits_at_the_end_is_told_so(start: Start, head: bytes, sent: bytes) -> None:
    """Rule 9: a held request and half an upload get an error in the API's form."""
    gateway = start(f"http://127.0.0.1:{free_port()}", hold_s=60, drain_s=0.2)
    with gateway.client(timeout_s=30) as client:
        client.send(head + b"host: x\r\nauthorization: Bearer %b\r\n\r\n" % KEY.encode() + sent)
        wait_until(lambda: gateway.status()["engines"])
        gateway.terminate()
        reply = client.read_body(client.read_head())
    assert (reply.status, reply.json()["error"]["code"]) == (503, "shutting_down")
    assert gateway.wait_exit() == 0
    assert gateway.events()[-1]["outcome"] == "drained"
    assert "trace" not in gateway.output


def test_the_hold_ends_with_the_phase(start: Start) -> None:
    """B25: live but not ready; the phase comes from the launcher."""
    launcher = {"phase": "loading", "ready": False, "message": "weights 40 %", "model": "org/m"}
    with FakeVLLM() as status_page:
        status_page.behaviour.script = answer(launcher)
        dead = f"http://127.0.0.1:{free_port()}"
        gateway = start(dead, hold_s=0.3, status_urls=status_page.url)
        wait_until(lambda: once(gateway.port, "GET", "/readyz").json()["phase"] == "loading")
        ready = once(gateway.port, "GET", "/readyz")
        assert (ready.status, ready.json()["ready"]) == (503, False)
        assert ready.json()["message"] == "weights 40 %"
        assert once(gateway.port, "GET", "/livez").status == 200
        assert once(gateway.port, "GET", "/health").status == 200
        reply = gateway.chat()
        assert reply.status == 503
        assert "loading" in reply.json()["error"]["message"]
        assert int(reply.header("retry-after") or 0) > 0
        status = gateway.status()
        assert (status["model"], status["phase"]) == ("org/m", "loading")
        assert status["engines"][0]["upstream"] == 0


def test_the_status_tells_what_the_launcher_tells(start: Start) -> None:
    """Graphs, debug mode and the start come from the launcher, whole; null without."""
    told = {
        "phase": "ready",
        "ready": True,
        "debug": True,
        "api_servers": 4,
        "start": {"seconds": 60.2, "compile_cache": "warm"},
        "graphs": {"verdict": "partly", "reason": "r", "fix": "f", "full_sizes": [1, 2]},
        "kv_cache": {"tokens": 908_560, "usage": 0.1, "predicted_tokens": 9, "difference": -0.1},
    }
    with FakeVLLM() as fake, FakeVLLM() as status_page:
        status_page.behaviour.script = answer({"phase": "ready", "ready": True})
        gateway = start(fake.url, status_urls=status_page.url)
        gateway.wait_ready()
        names = told.keys() - {"phase", "ready"}
        assert {name: gateway.status()[name] for name in names} == dict.fromkeys(names)
        status_page.behaviour.script = answer(told)
        wait_until(lambda: gateway.status()["debug"] is True)
        status = gateway.status()
    assert {name: status[name] for name in names} == {name: told[name] for name in names}


def test_a_launcher_that_drains_overrules_a_healthy_engine(start: Start) -> None:
    """vLLM says 200 on /health while it aborts new requests."""
    with FakeVLLM() as fake, FakeVLLM() as status_page:
        status_page.behaviour.script = answer({"phase": "ready", "ready": True})
        gateway = start(fake.url, hold_s=0.1, status_urls=status_page.url)
        gateway.wait_ready()
        status_page.behaviour.script = answer({"phase": "draining", "ready": False})
        wait_until(lambda: once(gateway.port, "GET", "/readyz").status == 503)
        assert gateway.chat().status == 503
        assert not fake.requests


def test_the_slots_follow_what_the_engine_runs(start: Start) -> None:
    """Waiting inside the engine is first come first served; here it is fair and bounded."""
    launcher = {"phase": "ready", "ready": True, "max_num_seqs": 96, "running": 0, "waiting": 0}
    with FakeVLLM() as fake, FakeVLLM() as status_page:
        status_page.behaviour.script = answer(launcher)
        gateway = start(fake.url, status_urls=status_page.url)
        gateway.wait_ready()
        assert gateway.status()["gateway"]["slots"] == 96
        status_page.behaviour.script = answer({**launcher, "running": 16, "waiting": 80})
        wait_until(lambda: gateway.status()["gateway"]["slots"] == 20, 20)
        status_page.behaviour.script = answer({**launcher, "running": 16})
        wait_until(lambda: gateway.status()["gateway"]["slots"] > 20, 20)


def test_a_bound_that_was_set_stays(fake: FakeVLLM, start: Start) -> None:
    gateway = start(fake.url, max_concurrency=7)
    gateway.wait_ready()
    assert gateway.status()["gateway"]["slots"] == 7


def test_keys_take_turns_in_the_queue(fake: FakeVLLM, tmp_path: Path, start: Start) -> None:
    """One that asks for much does not make another wait behind all of it."""
    text = "".join(f'[[key]]\nname = "{n}"\nkey = "sk-key-of-{n}"\n' for n in "ab")
    gateway = start(fake.url, keys_file=write_keys(tmp_path, text), max_concurrency=1)
    gateway.wait_ready()
    fake.enqueue(Pause(0.5), *answer())
    with ExitStack() as stack:
        clients = [stack.enter_context(gateway.client()) for _ in range(6)]
        for number, (key, client) in enumerate(zip("aaaaab", clients, strict=True)):
            headers = {"authorization": f"Bearer sk-key-of-{key}", "x-request-id": f"{key}{number}"}
            client.send(build("POST", CHAT, headers, b"{}"))
            wait_until(lambda n=number: gateway.status()["gateway"]["queued"] == n)  # type: ignore[misc]
        for client in clients:
            assert client.read_body(client.read_head()).status == 200
    order = [one.header("x-request-id") for one in fake.requests]
    assert order == [b"a0", b"a1", b"b5", b"a2", b"a3", b"a4"]


def test_no_launcher_answers(start: Start) -> None:
    gateway = start(f"http://127.0.0.1:{free_port()}", hold_s=0)
    ready = once(gateway.port, "GET", "/readyz").json()
    assert (ready["ready"], ready["phase"]) == (False, "waiting")
    assert gateway.chat().status == 503
    status = gateway.status()
    (engine,) = status["engines"]
    assert not engine["reachable"]
    assert not engine["ready"]
    assert (engine["upstream"], engine["phase"], engine["models"]) == (0, "waiting", [])
    assert status["served_model_names"] == []


def test_an_engine_that_stops_accepting_is_waited_for(start: Start) -> None:
    """Its probe still said ready; nothing was sent, so the request is held, not failed."""
    with FakeVLLM() as fake:
        gateway = start(fake.url, hold_s=10)
        gateway.wait_ready()
        fake.stop_listening(reset=True)
        with gateway.client() as client:
            client.send(build("POST", CHAT, AUTH, b"{}"))
            time.sleep(0.3)
            fake.listen()
            assert client.read_body(client.read_head()).status == 200
        assert len(fake.requests) == 1


def test_a_reused_connection_that_dies_is_replaced_once(start: Start) -> None:
    """B20, second part: closed the instant the request arrives on a reused connection."""
    with FakeVLLM() as fake:
        gateway = start(fake.url)
        gateway.wait_ready()
        assert gateway.chat(b"{}").status == 200
        fake.behaviour.drop_reused = True
        for _ in range(5):
            assert gateway.chat(b'{"a":1}').status == 200
        gateway.wait_event(6)
        assert [event["resent"] for event in gateway.events()] == [False, *[True] * 5]


def test_an_engine_that_closes_idle_connections_early(start: Start) -> None:
    """B20: requests around the moment at which the engine hangs up; no error in any round."""
    with FakeVLLM(Behaviour(idle_s=0.1)) as fake:
        gateway = start(fake.url)
        gateway.wait_ready()
        for number in range(40):
            assert gateway.chat(b"{}").status == 200
            time.sleep(0.09 + number % 20 / 1000)
        assert len(fake.requests) == 40


@pytest.mark.parametrize("steps", [(Fin(),), (Pause(0.05), Fin())])
def test_a_fresh_connection_that_dies_is_not_tried_again(
    start: Start, steps: tuple[Step, ...]
) -> None:
    """B24, rule 2: the engine is alive and may have begun; one POST, one 502."""
    with FakeVLLM() as fake:
        gateway = start(fake.url)
        gateway.wait_ready()
        fake.enqueue(*steps)
        reply = gateway.chat()
        assert (reply.status, reply.json()["error"]["code"]) == (502, "upstream_error")
        assert len(fake.requests) == 1


def test_a_crash_before_the_first_byte_moves_the_request(start: Start) -> None:
    """Rule 2: a fresh connection died and the engine refuses: the other engine answers."""
    with FakeVLLM() as first, FakeVLLM() as second:
        gateway = start(f"{first.url},{second.url}")
        gateway.wait_ready()
        wait_until(lambda: all(each["reachable"] for each in gateway.status()["engines"]))
        first.enqueue(Pause(30))
        with gateway.client() as client:
            client.send(build("POST", CHAT, AUTH, b"{}"))
            first.wait_until(lambda: first.requests)
            first.stop_listening(reset=True)
            assert client.read_body(client.read_head()).status == 200
        assert (len(first.requests), len(second.requests)) == (1, 1)
        event = gateway.wait_event()
        assert (event["resent"], event["upstream"]) == (True, 1)


def test_a_crash_after_the_first_byte_does_not(start: Start) -> None:
    with FakeVLLM() as first, FakeVLLM() as second:
        gateway = start(f"{first.url},{second.url}")
        gateway.wait_ready()
        first.enqueue(Send(sse_head()), Pause(30))
        with gateway.client() as client:
            client.send(build("POST", CHAT, AUTH, STREAM))
            reply = client.read_head()
            first.stop_listening(reset=True)
            client.read_body(reply)
        assert b'"error"' in reply.body
        assert not second.requests


def test_the_least_busy_engine_is_used(start: Start) -> None:
    with FakeVLLM() as first, FakeVLLM() as second:
        gateway = start(f"{first.url},{second.url}")
        wait_until(lambda: all(each["reachable"] for each in gateway.status()["engines"]))
        for fake in (first, second):
            fake.behaviour.script = (Send(sse_head()), Pause(60))
        with ExitStack() as stack:
            for number in range(1, 7):
                client = stack.enter_context(gateway.client())
                client.send(build("POST", CHAT, AUTH, STREAM))
                wait_until(lambda n=number: len(first.requests) + len(second.requests) == n)  # type: ignore[misc]
        assert (len(first.requests), len(second.requests)) == (3, 3)


def test_status_events_follow_changes(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """Whole events, LF endings, only when something changed."""
    with gateway.client() as client:
        client.send(build("GET", "/status/events", {}, b""))
        reply = client.read_head()
        assert (reply.header("content-type") or "").startswith("text/event-stream")
        assert reply.header("x-accel-buffering") == "no"
        pieces = client.pieces(reply)
        first = next(pieces).decode()
        assert first.startswith("event: status\ndata: {")
        assert first.endswith("\n\n")
        fake.enqueue(Send(sse_head()), Pause(1.2))
        with gateway.client() as other:
            other.send(build("POST", CHAT, AUTH, STREAM))
            second = next(pieces).decode()
        assert json.loads(second.split("data: ")[1])["gateway"]["in_flight"] == 1
