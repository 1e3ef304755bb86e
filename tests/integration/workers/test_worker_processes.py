"""The manager and its workers as processes: deaths, stops, keys, logs, Valkey gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.load import counted
from common.rawhttp import build, once
from common.script import DONE, Pause, Repeat, Send, chunk, delta_event, finish_event, sse_head
from common.servers import (
    AUTH,
    CHAT,
    KEY,
    GatewayProcess,
    base_environment,
    wait_until,
    write_keys,
)
from common.valkey import ValkeyProcess
from common.workers import Streams, alive, pids

# Several interpreters start in each test: patience with a busy machine.
pytestmark = pytest.mark.timeout(240)

Start = Callable[..., GatewayProcess]
STREAM = b'{"stream":true}'
END = (Send(chunk(delta_event("") + finish_event() + DONE)), Send(chunk(b"")))


def endless(fake: FakeVLLM) -> None:
    """Answers that go on until the gateway closes them."""
    fake.behaviour.script = (Send(sse_head()), Repeat(chunk(delta_event("x")), 100_000, 0.05))


def lasting(fake: FakeVLLM, seconds: float) -> None:
    """Answers that end well after that time."""
    fake.behaviour.script = (Send(sse_head()), Pause(seconds), *END)


def open_at_engine(fake: FakeVLLM) -> int:
    return sum(one.closed_at is None and one.answered_at is None for one in fake.requests)


def test_two_workers_serve_and_log_as_one(start: Start) -> None:
    """Every line is whole, whoever wrote it, and both took part."""
    gateway = start()

    def work(number: int) -> None:
        with gateway.client() as client:
            for turn in range(10):
                tag = f"{number:02}-{turn:02}-".ljust(64, "x")
                headers = {**AUTH, "x-request-id": tag}
                assert client.request("POST", CHAT, headers, b"{}").status == 200

    threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: sum(one["route"] == CHAT for one in gateway.events()) == 300)
    lines = [json.loads(line) for line in gateway.lines]
    assert len({line["request_id"] for line in lines if line["event"] == "request"}) >= 300
    ids = {once(gateway.port, "GET", "/nowhere").header("x-request-id") for _ in range(100)}
    assert len({(one or "")[:16] for one in ids}) == 2
    assert sum("listening on" in line.get("message", "") for line in lines) == 1
    assert gateway.status()["gateway"]["shared_state"] == "ok"


def test_slots_are_exact_over_workers(start: Start, fake: FakeVLLM) -> None:
    gateway = start(max_concurrency=3, workers=3)
    lasting(fake, 0.2)
    clients = [gateway.client() for _ in range(24)]
    for client in clients:
        client.send(build("POST", CHAT, AUTH, STREAM))
    for client in clients:
        with client:
            assert client.read_body(client.read_head()).whole
    spans = [(one.at, one.answered_at or 0.0) for one in fake.requests]
    assert len(spans) == 24
    most = max(sum(begun <= at < ended for begun, ended in spans) for at, _ in spans)
    assert most == 3


def test_what_is_held_is_one_queue_over_workers(start: Start, fake: FakeVLLM) -> None:
    """Longer than the queue time, and past its size at once refused; then all are served."""
    gateway = start(max_concurrency=2, queue_size=6, queue_timeout_s=1, hold_s=60)
    fake.behaviour.health = 503
    wait_until(lambda: counted(gateway, "gateway_upstream_ready") == 0, 10)
    wait_until(lambda: all(not_ready(gateway) for _ in range(20)), 10)
    with ExitStack() as stack:
        clients = [stack.enter_context(gateway.client(timeout_s=60)) for _ in range(10)]
        for client in clients:
            client.send(build("POST", CHAT, AUTH, b"{}"))
        wait_until(lambda: counted(gateway, "gateway_requests_queued") == 6)
        wait_until(lambda: counted(gateway, "gateway_rejected_total", reason="overloaded") == 4)
        time.sleep(1.5)
        assert counted(gateway, "gateway_requests_queued") == 6
        fake.behaviour.health = 200
        replies = [client.read_body(client.read_head()) for client in clients]
    assert sorted(reply.status for reply in replies) == [200] * 6 + [503] * 4


def not_ready(gateway: GatewayProcess) -> bool:
    return once(gateway.port, "GET", "/readyz").status == 503


def test_a_killed_workers_slots_come_back(start: Start, fake: FakeVLLM) -> None:
    """Its streams end, the others go on, as many as before run again, and a new worker comes."""
    gateway = start(max_concurrency=40)
    endless(fake)
    with Streams(gateway) as streams:
        streams.on_each()
        victim, other = streams.of
        os.kill(victim, signal.SIGKILL)
        for client, reply in streams.of[victim]:
            assert not client.read_body(reply).whole
        left = len(streams.of[other])
        fake.wait_until(lambda: open_at_engine(fake) == left)
        wait_until(lambda: "signal 9" in gateway.output)
        more = [streams.begin() for _ in range(40 - left)]
        assert open_at_engine(fake) == 40
        with gateway.client() as queued:
            queued.send(build("POST", CHAT, AUTH, STREAM))
            for client, reply in streams.of[other]:
                next(client.pieces(reply))
            assert open_at_engine(fake) == 40
            more[0][0].socket.close()
            assert queued.read_head().status == 200
        wait_until(lambda: len(pids(gateway)) == 2)
        wait_until(lambda: gateway.output.count("Valkey: connected") >= 3, 60)


def test_a_stop_drains_every_worker(start: Start, fake: FakeVLLM) -> None:
    gateway = start(drain_s=20)
    lasting(fake, 4)
    with Streams(gateway) as streams:
        streams.on_each()
        gateway.terminate()
        wait_until(lambda: sum("draining" in line for line in gateway.lines) == 2)
        assert streams.end_well()
    assert gateway.wait_exit(20) == 0


def test_interrupt_twice_stops_all_at_once(start: Start, fake: FakeVLLM) -> None:
    gateway = start(drain_s=60)
    endless(fake)
    workers = pids(gateway)
    with Streams(gateway) as streams:
        streams.on_each()
        gateway.process.send_signal(signal.SIGINT)
        wait_until(lambda: sum("draining" in line for line in gateway.lines) == 2)
        gateway.process.send_signal(signal.SIGINT)
        gateway.wait_exit(10)
    assert not any(map(alive, workers))


def test_no_worker_outlives_its_manager(start: Start, fake: FakeVLLM) -> None:
    """A manager that is killed: streams end well, then the workers are gone."""
    gateway = start(drain_s=20)
    lasting(fake, 2)
    workers = pids(gateway)
    with Streams(gateway) as streams:
        streams.on_each()
        gateway.process.kill()
        assert streams.end_well()
    wait_until(lambda: not any(map(alive, workers)), 10)


def test_workers_that_never_serve_end_the_gateway(tmp_path: Path, valkey: ValkeyProcess) -> None:
    code = 'import os, sys\nif "gateway.worker" in sys.orig_argv: os._exit(3)\n'
    (tmp_path / "sitecustomize.py").write_text(code)
    base = base_environment()
    environment = {
        **base,
        "PYTHONPATH": f"{tmp_path}:{base['PYTHONPATH']}",
        "GATEWAY_API_KEYS_FILE": str(write_keys(tmp_path)),
        "GATEWAY_PORT": "0",
        "GATEWAY_WORKERS": "2",
        "GATEWAY_VALKEY_URL": valkey.url,
    }
    done = subprocess.run(
        [sys.executable, "-m", "gateway"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (1, "")
    (last,) = [line for line in lines if "none serves" in line["message"]]
    assert last["level"] == "error"


def test_a_place_that_cannot_be_filled_does_not_end_the_others(
    start: Start, tmp_path: Path
) -> None:
    """The key file broke meanwhile: the worker that runs has the last good keys."""
    gateway = start()
    good = (tmp_path / "api_keys.toml").read_text()
    write_keys(tmp_path, "not a key file")
    wait_until(lambda: gateway.output.count("keys not reloaded") == 2)
    os.kill(pids(gateway)[0], signal.SIGKILL)
    wait_until(lambda: gateway.output.count("exit code 2") >= 3, 90)
    assert gateway.chat(b"{}").status == 200
    write_keys(tmp_path, good)
    wait_until(lambda: gateway.output.count("Valkey: connected") >= 3, 60)
    gateway.terminate()
    assert gateway.wait_exit() == 0


def test_keys_change_in_all_workers(start: Start, tmp_path: Path) -> None:
    gateway = start()
    new = "sk-new-0123456789abcdef"
    write_keys(tmp_path, f'[[key]]\nname = "n"\nkey = "{new}"\n')
    time.sleep(2)  # what is promised
    for _ in range(40):
        assert gateway.chat(b"{}", authorization=f"Bearer {new}").status == 200
        assert gateway.chat(b"{}", authorization=f"Bearer {KEY}").status == 401


def test_valkey_gone_and_back(start: Start, valkey: ValkeyProcess) -> None:
    gateway = start(max_concurrency=4)

    def everywhere(state: str) -> bool:
        seen = {gateway.status()["gateway"]["shared_state"] for _ in range(20)}
        return seen == {state}

    valkey.kill()
    wait_until(lambda: everywhere("down"))
    assert gateway.chat(b"{}").status == 200
    valkey.start()
    wait_until(lambda: everywhere("ok"), 30)
    valkey.stall()
    began = time.monotonic()
    for _ in range(40):
        assert gateway.chat(b"{}").status == 200
    assert time.monotonic() - began < 10  # half a second for each worker, not for each request
    wait_until(lambda: everywhere("down"))
    valkey.go_on()
    wait_until(lambda: everywhere("ok"), 30)
    warnings = gateway.events("gateway.shared")
    assert len(warnings) < 20  # one line a worker for each time, not for each request or try


def test_workers_start_without_valkey(start: Start, valkey: ValkeyProcess) -> None:
    valkey.kill()
    gateway = start()
    assert gateway.chat(b"{}").status == 200
    assert gateway.status()["gateway"]["shared_state"] == "down"
