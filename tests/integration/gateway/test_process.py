"""The process: start-up errors, keys that change while it runs, logs without secrets, shut-down."""

from __future__ import annotations

import hashlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from common.fake_vllm import Behaviour, FakeVLLM
from common.rawhttp import build, once
from common.script import DONE, Pause, Repeat, Send, answer, chunk, delta_event, sse_head, stream
from common.servers import (
    AUTH,
    CHAT,
    KEY,
    GatewayProcess,
    base_environment,
    run_gateway,
    wait_until,
    write_keys,
)

Start = Callable[..., GatewayProcess]
STREAM = b'{"stream":true}'


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("GATEWAY_PORT", "http", "0 to 65535"),
        ("GATEWAY_PORT", "70000", "0 to 65535"),
        ("GATEWAY_UPSTREAMS", "vllm:8000", "http://host:port"),
        ("GATEWAY_UPSTREAMS", "http://vllm:8000/v1", "http://host:port"),
        ("GATEWAY_UPSTREAMS", "http://vllm:99999", "http://host:port"),
        ("GATEWAY_UPSTREAMS", ",", "http://host:port"),
        ("GATEWAY_STATUS_URLS", "http://a:1,http://b:1", "found 2 URLs for 1"),
        ("GATEWAY_HOLD_S", "nan", "0 to 3600"),
        ("GATEWAY_IDLE_TIMEOUT_S", "0", "0.05 to 3600"),
        ("GATEWAY_LOG_LEVEL", "loud", "debug, info"),
        ("GATEWAY_WORKERS", "4", "add compose/workers.yml to COMPOSE_FILE"),
        ("GATEWAY_WORKERS", "65", "1 to 64"),
        ("GATEWAY_VALKEY_URL", "valkey:6379", "valkey://host:port"),
        ("GATEWAY_HEARTBEAT_S", "0.1", "0.2 to 3600, or 0"),
        ("GATEWAY_QUEU_SIZE", "5", "did you mean GATEWAY_QUEUE_SIZE?"),
        ("GATEWAY_HOST", "192.0.2.1", "own address"),
        ("GATEWAY_HOST", "a..b", "own address"),
        ("GATEWAY_DRAIN_S", "1e2", "plain decimals"),
    ],
)
def test_a_bad_setting_is_one_line(keys: Path, name: str, value: str, words: str) -> None:
    done = run_gateway(GATEWAY_API_KEYS_FILE=str(keys), **{name: value})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(name)
    assert words in done.stderr


def test_a_taken_port_is_one_line(keys: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_gateway(GATEWAY_API_KEYS_FILE=str(keys), GATEWAY_PORT=str(port))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{port}" in done.stderr


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no file"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_text(""), "[[key]]"),
        (lambda path: path.write_text("\n\n"), "[[key]]"),
        (lambda path: path.write_text("[[key]\n"), "not valid TOML"),
        (lambda path: path.write_text('[[key]]\nname="a"\nkey="changeme"\n'), "placeholder"),
        (lambda path: path.symlink_to("nowhere"), "no file"),
        (lambda path: path.symlink_to(path), "not readable"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "UTF-8"),
        (lambda path: path.write_text("a = " + "[" * 50_000), "not a key file"),
        (lambda path: path.write_text("a = " + "1" * 5_000), "not a key file"),
    ],
)
def test_a_bad_key_file_is_one_line(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    """B48, B49."""
    path = tmp_path / "api_keys.toml"
    make(path)
    done = run_gateway(GATEWAY_API_KEYS_FILE=str(path), GATEWAY_PORT="0")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("GATEWAY_API_KEYS_FILE: ")
    assert words in done.stderr
    assert "changeme" not in done.stderr


def replace_keys(path: Path, text: str) -> None:
    """As an editor does: a new file under the old name."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_keys_work_within_two_seconds(start: Start, tmp_path: Path) -> None:
    """Added, revoked, as a digest, broken: the last good ones stay; gone and back."""
    path = write_keys(tmp_path)
    other = "sk-other-0123456789abcdef"
    hexed = hashlib.sha256(other.encode()).hexdigest()
    both = path.read_text() + f'[[key]]\nname = "other"\nsha256 = "{hexed}"\n'
    with FakeVLLM() as fake:
        gateway = start(fake.url, keys_file=path)
        gateway.wait_ready()

        def status(key: str) -> int:
            bearer = {"authorization": f"Bearer {key}"}
            return once(gateway.port, "POST", CHAT, bearer, b"{}").status

        assert (status(KEY), status(other)) == (200, 401)
        replace_keys(path, both)
        wait_until(lambda: status(other) == 200, 2)
        replace_keys(path, "[[key")
        wait_until(lambda: "not reloaded" in gateway.output, 2)
        assert (status(KEY), status(other)) == (200, 200)
        path.unlink()
        time.sleep(1.2)
        assert status(other) == 200
        replace_keys(path, both.replace("sha256", "expires = 2020-01-01\nsha256"))
        wait_until(lambda: status(other) == 401, 2)
        assert status(KEY) == 200


def test_a_key_with_an_allow_list_of_models(start: Start, tmp_path: Path) -> None:
    text = f'[[key]]\nname = "some"\nkey = "{KEY}"\nmodels = ["org/a"]\n'
    path = write_keys(tmp_path, text)
    with FakeVLLM(Behaviour(models=("org/a", "org/b"))) as fake:
        gateway = start(fake.url, keys_file=path)
        gateway.wait_ready()
        listed = once(gateway.port, "GET", "/v1/models", AUTH).json()["data"]
        assert [each["id"] for each in listed] == ["org/a"]
        assert once(gateway.port, "GET", "/v1/models/org/a", AUTH).status == 200
        assert once(gateway.port, "GET", "/v1/models/org%2Fb", AUTH).status == 404
        bodies = {
            b'{"model":"org/a"}': 200,
            b'{"model":"org/b"}': 403,
            b'{"model":"org/b","model":"org/a"}': 200,
            b'{"model":"org/a","model":"org/b"}': 403,
            b"{}": 200,
            b'{"model":["org/a"]}': 403,
            b"[" * 300_000: 400,
            b"not json": 400,
        }
        assert {body: gateway.chat(body).status for body in bodies} == bodies


MARKS = ["sk-LEAKMARK-123456", "PROMPTMARK", "sk-LEAKMARK-999999", "HEADERMARK", "BODYMARK"]


def test_neither_keys_nor_prompts_reach_the_log(start: Start, tmp_path: Path) -> None:
    """B47, at the most talkative level."""
    path = write_keys(tmp_path, f'[[key]]\nname = "default"\nkey = "{MARKS[0]}"\n')
    headers = {"authorization": f"Bearer {MARKS[0]}", "x-secret": "HEADERMARK"}
    body = b'{"stream":true,"messages":[{"role":"user","content":"PROMPTMARK"}]}'
    with FakeVLLM() as fake:
        gateway = start(
            fake.url, keys_file=path, log_level="debug", first_byte_timeout_s=0.3, hold_s=0.1
        )
        gateway.wait_ready()

        def ask(target: str = CHAT, **more: str) -> int:
            return once(gateway.port, "POST", target, {**headers, **more}, body).status

        assert ask() == 200
        assert ask(authorization=f"Bearer {MARKS[2]}") == 401
        assert ask(f"{CHAT}?api_key={MARKS[0]}") == 200
        assert ask(f"/v1/{MARKS[0]}") == 404
        fake.enqueue(*answer({"detail": "BODYMARK"}, 500))
        assert ask() == 500
        fake.enqueue(Pause(5))
        assert ask() == 504
        fake.enqueue(Send(b"BODYMARK\r\n\r\n"))
        assert ask() == 502
        with gateway.client() as client:
            client.send(f"POST {CHAT} HTTP/1.1\r\nauth {MARKS[0]}\r\n\r\n".encode())
            assert client.read_head().status == 400
        replace_keys(path, f'[[key]]\nname = "default"\nkey = "{MARKS[0]}\n')
        wait_until(lambda: "not reloaded" in gateway.output, 3)
        fake.stop_listening(reset=True)
        assert ask() == 503
        gateway.wait_event(1)
        gateway.terminate()
        assert gateway.wait_exit() == 0
        wait_until(lambda: "drained" in gateway.output)
    assert [mark for mark in MARKS if mark in gateway.output] == []


def test_sigterm_drains(start: Start) -> None:
    """B23: three streams finish, an endless one is told, new work is refused, exit code 0."""
    with FakeVLLM() as fake:
        gateway = start(fake.url, drain_s=4)
        gateway.wait_ready()
        short = stream(*"abcdefgh", interval_s=0.12)
        for _ in range(3):
            fake.enqueue(*short)
        event = chunk(delta_event("endless"))
        fake.enqueue(Send(sse_head()), Repeat(event, 1000, 0.05))
        fake.enqueue(Pause(60))
        clients = [gateway.client() for _ in range(6)]
        for number, client in enumerate(clients[:5], 1):
            client.send(build("POST", CHAT, AUTH, STREAM if number < 5 else b"{}"))
            fake.wait_until(lambda n=number: len(fake.requests) == n)  # type: ignore[misc]
        began = time.monotonic()
        gateway.terminate()
        wait_until(lambda: once(gateway.port, "GET", "/readyz").status == 503, 3)
        assert once(gateway.port, "GET", "/readyz").json()["phase"] == "draining"
        assert once(gateway.port, "GET", "/livez").status == 200
        refused = gateway.chat()
        assert (refused.status, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.header("retry-after")

        replies = [client.read_body(client.read_head()) for client in clients[:5]]
        assert gateway.wait_exit(15) == 0
        assert 3.5 < time.monotonic() - began < 10
        for client in clients:
            client.socket.close()
        assert all(reply.body.endswith(DONE) for reply in replies[:3])
        assert replies[3].whole
        assert b'"shutting_down"' in replies[3].body
        assert DONE not in replies[3].body
        assert replies[4].status == 503
        fake.wait_until(lambda: all(r.closed_at for r in fake.requests[3:]), 1)
    outcomes = [event["outcome"] for event in gateway.events() if event["route"] == CHAT]
    assert sorted(outcomes) == ["drained", "drained", "ok", "ok", "ok", "rejected"]


def test_an_idle_gateway_stops_at_once(start: Start) -> None:
    """Also with a status watcher and an idle keep-alive connection."""
    with FakeVLLM() as fake:
        gateway = start(fake.url)
        gateway.wait_ready()
        with gateway.client() as watcher, gateway.client() as kept:
            watcher.send(build("GET", "/status/events", {}, b""))
            reply = watcher.read_head()
            assert kept.request("POST", CHAT, AUTH, b"{}").status == 200
            began = time.monotonic()
            gateway.terminate()
            assert watcher.read_body(reply).whole
            assert gateway.wait_exit() == 0
            assert time.monotonic() - began < 3
    assert "Traceback" not in gateway.output


def test_interrupt_twice_stops_now(start: Start) -> None:
    with FakeVLLM() as fake:
        gateway = start(fake.url, drain_s=60)
        gateway.wait_ready()
        fake.enqueue(Send(sse_head()), Pause(60))
        with gateway.client() as client:
            client.send(build("POST", CHAT, AUTH, STREAM))
            client.read_head()
            gateway.process.send_signal(signal.SIGINT)
            wait_until(lambda: "draining" in gateway.output)
            gateway.process.send_signal(signal.SIGINT)
            gateway.wait_exit(8)


def test_a_terminal_interrupt_of_a_starting_gateway(start: Start) -> None:
    """No engine at all: it starts, says so, and stops in order."""
    gateway = start("http://127.0.0.1:9")
    assert once(gateway.port, "GET", "/readyz").status == 503
    gateway.terminate()
    assert gateway.wait_exit() == 0


def check(keys: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    values = {"GATEWAY_API_KEYS_FILE": str(keys), **settings}
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env={**base_environment(), **values},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_check_judges_settings_and_keys_and_serves_nothing(keys: Path) -> None:
    good = check(keys, "--check")
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    setting = check(keys, "--check", GATEWAY_DRAIN_S="900", GATEWAY_HOLD_S="1e2")
    assert setting.returncode == 2
    assert sorted(line.split(":")[0] for line in setting.stderr.splitlines()) == [
        "GATEWAY_DRAIN_S",
        "GATEWAY_HOLD_S",
    ]
    missing = check(keys.parent / "none.toml", "--check")
    assert missing.returncode == 2
    assert missing.stderr.startswith("GATEWAY_API_KEYS_FILE: ")
    assert missing.stderr.count("\n") == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert check(keys, "--check", GATEWAY_PORT=port).returncode == 0  # it does not listen


@pytest.mark.parametrize("arguments", [("--help",), ("--check", "now"), ("",)])
def test_other_arguments_are_one_usage_line(keys: Path, arguments: tuple[str, ...]) -> None:
    done = check(keys, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m gateway [--check]")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("broken", ["auth.POLL_S", "health.WAITING_INTERVAL_S"])
def test_a_background_task_that_dies_ends_the_process(keys: Path, broken: str) -> None:
    """Keys that are no longer followed, or engines that nobody probes, must not go unnoticed."""
    module = broken.partition(".")[0]
    code = (
        f"import sys, gateway.{module}, gateway.__main__ as entry\n"
        f"gateway.{broken} = 'no number'\n"  # a fault nobody thought of: TypeError when it sleeps
        "sys.exit(entry.main([]))"
    )
    values = {"GATEWAY_API_KEYS_FILE": str(keys), "GATEWAY_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**base_environment(), **values},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (fault,) = [line for line in lines if line["level"] not in {"debug", "info"}]
    assert (done.returncode, done.stderr) == (1, "")
    assert fault["error"] == "TypeError"
    assert any(f"/gateway/{module}.py:" in place for place in fault["trace"])
