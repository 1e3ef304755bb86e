"""Local mode from `up` to `down` with the real engine. The tests run in the order they stand in:
they follow one stack through its life, since each start of the engine takes most of a minute."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from common import checkout as checkouts
from common.local_stack import UP_S, LocalStack
from e2e.conftest import FirstUp
from openai import AuthenticationError, OpenAI

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
QUESTION = {"role": "user", "content": "What is the capital of France?"}
STATUS_KEYS = {
    "mode", "phase", "ready", "model", "served_model_names", "engine_version", "graphs",
    "kv_cache", "running", "waiting", "debug", "start", "api_servers",
}  # fmt: skip


def generated(local: LocalStack) -> int:
    """vLLM's own counter, read from the engine itself."""
    port = json.loads((local.run / "ports.json").read_text())["engine"]
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r"^vllm:generation_tokens_total\{[^}]*\} ([0-9.e+]+)$", text, re.MULTILINE)
    return int(sum(float(value) for value in found))


def ask(local: LocalStack, model: str | None = None) -> dict[str, object]:
    body = {"messages": [QUESTION], "temperature": 0, **({"model": model} if model else {})}
    request = Request(  # noqa: S310 (our own nginx)
        f"{local.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {local.key()}", "Content-Type": "application/json"},
    )
    with urlopen(request, timeout=120) as answer:  # noqa: S310
        return dict(json.load(answer))


def client(local: LocalStack, key: str | None = None) -> OpenAI:
    return OpenAI(base_url=f"{local.url}/v1", api_key=key or local.key(), max_retries=0)


def test_up_says_what_runs(local: FirstUp) -> None:
    done = local.first_up
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("mode: local", "Paris", "counted by the engine", f"{local.url}/v1", "make chat"):
        assert words in done.stdout
    assert done.stderr == ""


def test_answer_and_the_engines_own_count(local: LocalStack) -> None:
    before = generated(local)
    answer = ask(local)
    text = json.dumps(answer["choices"])
    assert "Paris" in text
    usage = answer["usage"]
    assert isinstance(usage, dict)
    deadline = time.monotonic() + 10
    while generated(local) - before < usage["completion_tokens"] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert generated(local) - before == usage["completion_tokens"]


def test_the_official_client_streams(local: LocalStack) -> None:
    with client(local) as openai:
        chunks = list(
            openai.chat.completions.create(
                model="default",
                messages=[{"role": "user", "content": str(QUESTION["content"])}],
                temperature=0,
                stream=True,
            )
        )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Paris" in text
    assert len(chunks) > 3
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_keys_work_within_two_seconds(local: LocalStack) -> None:
    key = local.stack("key", "add", "guest").stdout.strip()
    assert within(2, lambda: accepted(local, key))
    assert local.stack("key", "revoke", "guest").returncode == 0
    assert within(2, lambda: not accepted(local, key))


def accepted(local: LocalStack, key: str) -> bool:
    with client(local, key) as openai:
        try:
            openai.models.list()
        except AuthenticationError:
            return False
        return True


def within(seconds: float, question: object) -> bool:
    assert callable(question)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.1)
    return False


def test_status(local: LocalStack) -> None:
    report = json.loads(local.stack("status", "--json").stdout)
    assert report.keys() >= STATUS_KEYS
    assert report["mode"] == "local"
    assert report["ready"] is True
    assert report["graphs"]["verdict"] == "not applicable"
    assert report["kv_cache"]["tokens"] > 0
    assert report["start"]["seconds"] > 1
    assert (report["debug"], report["api_servers"]) == (False, 1)
    assert set(report["services"]) == {"vllm", "gateway", "nginx"}
    screen = local.stack("status").stdout
    assert "SmolLM2-135M-Instruct" in screen
    assert "kv cache" in screen
    assert re.search(r"^start     \d+ s", screen, re.MULTILINE)
    assert "DEBUG" not in screen


def test_an_edited_port_is_not_a_stopped_stack(local: LocalStack) -> None:
    local.checkout.set_env(NGINX_PORT="9")
    try:
        screen = local.stack("status").stdout
    finally:
        local.checkout.set_env(NGINX_PORT=str(local.port))
    assert f".env differs from what runs (NGINX_PORT {local.port} -> 9); fix: make up" in screen
    assert "phase     ready" in screen


def test_chat_logs_and_doctor(local: LocalStack) -> None:
    words = ("chat", "--temperature", "0", "--max-tokens", "16", str(QUESTION["content"]))
    assert "Paris" in local.stack(*words, timeout=120).stdout
    assert "gateway" in local.stack("logs", "--no-follow").stdout
    doctor = json.loads(local.stack("doctor", "--json").stdout)
    assert doctor["ok"] is True


def test_up_again_changes_nothing(local: LocalStack) -> None:
    before = pids(local)
    began = time.monotonic()
    done = local.stack("up", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "nothing changed" in done.stdout
    assert pids(local) == before
    assert time.monotonic() - began < 40


def pids(local: LocalStack) -> dict[str, str]:
    return dict(json.loads(local.stack("status", "--json").stdout)["services"])


def test_debug_is_shouted_and_ends_with_the_next_up(local: LocalStack) -> None:
    before = pids(local)
    debug = local.stack("up", "--debug", timeout=UP_S)
    assert debug.returncode == 0, debug.stdout + debug.stderr
    assert debug.stdout.count("slow on purpose; end it with make up") == 2
    assert json.loads(local.stack("status", "--json").stdout)["debug"] is True
    assert local.stack("status").stdout.startswith("DEBUG     ")
    meanwhile = pids(local)
    done = local.stack("up", timeout=UP_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "started: vllm\n" in done.stdout
    assert "DEBUG" not in done.stdout + local.stack("status").stdout
    after = pids(local)
    assert len({before["vllm"], meanwhile["vllm"], after["vllm"]}) == 3
    assert (after["gateway"], after["nginx"]) == (before["gateway"], before["nginx"])


def test_a_second_clone_is_told_who_has_the_port(local: LocalStack, tmp_path: Path) -> None:
    other = checkouts.make(tmp_path)
    other.stack("init", env={"STACK_MODE": "local"})
    other.set_env(STACK_MODE="local", NGINX_PORT=str(local.port))
    done = other.stack("up")
    assert done.returncode == 1
    assert f"make down in {local.checkout.root}" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("MODEL", "/models/nothing-here", 10), ("GATEWAY_HOLD_S", "soon", 2)],
)
def test_bad_settings_leave_the_running_stack(
    local: LocalStack, name: str, value: str, code: int
) -> None:
    before = pids(local)
    done = local.checkout.stack("up", env={"PATH": os.environ["PATH"], name: value}, timeout=120)
    assert done.returncode in {code, 1}, done.stderr
    assert done.stderr.count("\n") == 1
    assert name in done.stderr
    assert pids(local) == before


def test_another_model_restarts_the_engine_alone(local: LocalStack) -> None:
    before = pids(local)
    local.checkout.set_env(MODEL="/models/second-model")
    done = local.stack("up", timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    after = pids(local)
    assert after["vllm"] != before["vllm"]
    assert (after["gateway"], after["nginx"]) == (before["gateway"], before["nginx"])
    with client(local) as openai:
        assert {model.id for model in openai.models.list()} == {"second-model", "default"}
    assert "Paris" in json.dumps(ask(local, "second-model")["choices"])


def test_a_restart_of_the_gateway_lets_a_stream_finish(local: LocalStack) -> None:
    with client(local) as openai:
        stream = openai.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": "Count from one to forty in words."}],
            temperature=0,
            max_tokens=120,
            stream=True,
        )
        first = next(stream)
        with ThreadPoolExecutor() as pool:
            restarted = pool.submit(local.stack, "restart", "gateway")
            rest = list(stream)
            done = restarted.result()
    assert first.choices[0].delta.role == "assistant"
    assert rest[-1].choices[0].finish_reason in {"length", "stop"}
    assert done.returncode == 0, done.stderr
    assert "make up applies .env" in done.stdout
    assert "Paris" in json.dumps(ask(local)["choices"])


def test_an_engine_that_crashes_is_reported_at_once(local: LocalStack) -> None:
    began = time.monotonic()
    env = {"PATH": os.environ["PATH"], "VLLM_EXTRA_ARGS": "--dtype nonsense"}
    done = local.checkout.stack("up", env=env, timeout=300)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "vllm stopped" in done.stderr
    assert time.monotonic() - began < 120
    report = json.loads(local.stack("status", "--json").stdout)
    assert report["ready"] is False
    assert report["services"]["nginx"].startswith("running")


def test_down_leaves_nothing_even_after_a_kill(local: LocalStack) -> None:
    ports = json.loads((local.run / "ports.json").read_text())
    os.kill(int((local.run / "supervisord.pid").read_text()), signal.SIGKILL)
    done = local.stack("down", timeout=120)
    assert done.returncode == 0, done.stderr
    assert [port for port in ports.values() if listens(port)] == []
    assert ours(local) == []
    assert json.loads(local.stack("status", "--json").stdout)["phase"] == "stopped"
    assert local.stack("down").returncode == 0


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ours(local: LocalStack) -> list[int]:
    """Processes with this checkout in their command line or as their folder."""
    root = str(local.checkout.root)
    found = []
    for home in Path("/proc").iterdir():
        if home.name.isdigit() and home.name != str(os.getpid()):
            try:
                words = (home / "cmdline").read_bytes().decode("utf-8", "replace")
                if root in words or str((home / "cwd").readlink()).startswith(root):
                    found.append(int(home.name))
            except OSError:
                continue
    return found
