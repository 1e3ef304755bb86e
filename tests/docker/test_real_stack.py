"""`STACK_MODE=cpu scripts/stack up` with the real vLLM CPU engine: what a user gets.

The engine starts twice: once with the stack, once after its crash. The tests run in their order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator

import httpx
import pytest
from common.callers import Callers
from common.docker_project import BUILD_S, Project, wait_until
from common.local_stack import MODEL

pytestmark = [pytest.mark.docker, pytest.mark.engine, pytest.mark.timeout(1800)]

ENGINE_START_S = 420  # 45 s alone on two cores; others may be at work
LONG_RUNNING = ("nginx", "gateway", "vllm")
QUESTION = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 24,
}


@pytest.fixture(scope="module")
def stack(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("real")
    with Project.create(root, {"STACK_MODE": "cpu"}) as project:
        project.stack("init")
        project.write_token(b"hf_LEAKMARK\n")
        up = project.stack("up", timeout=BUILD_S + ENGINE_START_S)
        assert project.url in up.stdout + up.stderr
        yield project


@pytest.fixture(scope="module")
def auth(stack: Project) -> dict[str, str]:
    return {"Authorization": f"Bearer {stack.stack('key', 'show', 'default').stdout.strip()}"}


def ask(stack: Project, auth: dict[str, str]) -> httpx.Response:
    url = f"{stack.url}/v1/chat/completions"
    return httpx.post(url, json=QUESTION, headers=auth, timeout=120)


def generated(stack: Project) -> int:
    """vLLM's own count of generated tokens, asked inside its container."""
    probe = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/metrics').read().decode())"
    metrics = stack.exec("vllm", "python3", "-c", probe).stdout
    (found,) = re.findall(r"^vllm:generation_tokens_total\{.*\} (\S+)$", metrics, re.MULTILINE)
    return int(float(found))


def readiness(stack: Project) -> int:
    return httpx.get(f"{stack.url}/readyz", timeout=10).status_code


def test_three_healthy_containers_and_a_finished_download(stack: Project) -> None:
    wait_until(
        lambda: [stack.health(name) for name in LONG_RUNNING] == ["healthy"] * 3, 60, "healthy"
    )
    state = stack.inspect("model")["State"]
    assert (state["Status"], state["ExitCode"]) == ("exited", 0)


def test_paris_and_every_token_counted(stack: Project, auth: dict[str, str]) -> None:
    before = generated(stack)
    answer = ask(stack, auth)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert "Paris" in body["choices"][0]["message"]["content"]
    assert generated(stack) - before == body["usage"]["completion_tokens"]


def test_stream(stack: Project, auth: dict[str, str]) -> None:
    url = f"{stack.url}/v1/chat/completions"
    asked = QUESTION | {"stream": True}
    with httpx.stream("POST", url, json=asked, headers=auth, timeout=120) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"] for line in lines[:-1]]
    assert "Paris" in "".join(c[0]["delta"].get("content") or "" for c in deltas if c)


def test_models_and_status(stack: Project, auth: dict[str, str]) -> None:
    models = httpx.get(f"{stack.url}/v1/models", headers=auth).json()
    assert "default" in [one["id"] for one in models["data"]]
    status = httpx.get(f"{stack.url}/status").json()
    assert status["phase"] == "ready"
    told = json.loads(stack.stack("status", "--json").stdout)
    assert (told["mode"], told["ready"]) == ("cpu", True)


def test_engine_container_is_locked_down(stack: Project) -> None:
    host = stack.inspect("vllm")["HostConfig"]
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["IpcMode"] == "host"
    status = stack.exec("vllm", "cat", "/proc/1/status").stdout
    found = dict(line.split(":", 1) for line in status.splitlines())
    assert int(found["Uid"].split()[0]) == 2000
    assert int(found["CapEff"], 16) == 0
    assert found["NoNewPrivs"].strip() == "1"
    for path in ("/opt/stack/x", "/cache/huggingface/x", "/models/x", "/etc/x"):
        tried = stack.exec("vllm", "sh", "-c", f"echo x > {path}", check=False)
        assert tried.returncode != 0, path


def test_engine_has_no_port_and_no_token(stack: Project) -> None:
    assert not any(stack.inspect("vllm")["NetworkSettings"]["Ports"].values())
    environment = stack.exec("vllm", "cat", "/proc/1/environ").stdout
    assert "TOKEN" not in environment
    assert stack.exec("vllm", "ls", "/run/secrets", check=False).returncode != 0


def test_no_secret_in_inspect_logs_ps_or_environment(stack: Project, auth: dict[str, str]) -> None:
    """B47, with the real engine's own logs in the search."""
    marked = QUESTION | {"messages": [{"role": "user", "content": "PROMPTMARK"}], "max_tokens": 2}
    url = f"{stack.url}/v1/chat/completions"
    assert httpx.post(url, json=marked, headers=auth, timeout=60).status_code == 200
    key = auth["Authorization"].removeprefix("Bearer ")
    places = {"logs": stack.logs(), "config": stack.compose("config").stdout}
    for service in (*LONG_RUNNING, "model"):
        places[f"inspect {service}"] = json.dumps(stack.inspect(service))
    for service in LONG_RUNNING:
        top = stack.run("docker", "top", stack.container(service), "-eo", "pid,args")
        places[f"ps {service}"] = top.stdout
    places["environment"] = stack.exec("gateway", "cat", "/proc/1/environ").stdout
    for place, text in places.items():
        assert key not in text, place
        assert "hf_LEAKMARK" not in text, place
        assert "PROMPTMARK" not in text, place


def test_key_added_and_revoked_in_the_running_stack(stack: Project) -> None:
    stack.stack("key", "add", "guest")
    guest = {"Authorization": f"Bearer {stack.stack('key', 'show', 'guest').stdout.strip()}"}
    models = f"{stack.url}/v1/models"

    def status() -> int:
        return httpx.get(models, headers=guest).status_code

    wait_until(lambda: status() == 200, 2, "the new key works")
    stack.stack("key", "revoke", "guest")
    wait_until(lambda: status() == 401, 2, "the revoked key is refused")


def test_second_up_recreates_nothing(stack: Project, auth: dict[str, str]) -> None:
    """Plain `docker compose up -d` means the same stack, and leaves what runs alone."""
    before = [stack.inspect(name) for name in LONG_RUNNING]
    stack.compose("up", "-d", "--wait", timeout=180)
    after = [stack.inspect(name) for name in LONG_RUNNING]
    assert [one["Id"] for one in before] == [one["Id"] for one in after]
    assert [one["State"]["StartedAt"] for one in before] == [
        one["State"]["StartedAt"] for one in after
    ]
    assert ask(stack, auth).status_code == 200


def test_engine_that_dies_comes_back(stack: Project, auth: dict[str, str]) -> None:
    """B25: dead engine → not ready at once, alive all along, ready again without a leftover 502."""
    top = stack.run("docker", "top", stack.container("vllm"), "-eo", "pid,args").stdout
    workers = [int(line.split()[0]) for line in top.splitlines() if "EngineCore" in line]
    assert workers, top
    os.kill(workers[0], signal.SIGKILL)
    wait_until(lambda: readiness(stack) == 503, 60, "not ready after the crash")
    assert httpx.get(f"{stack.url}/livez").status_code == 200
    assert stack.health("gateway") == "healthy"
    assert stack.health("nginx") == "healthy"
    wait_until(lambda: readiness(stack) == 200, ENGINE_START_S, "ready again")
    assert stack.inspect("vllm")["RestartCount"] >= 1
    assert [ask(stack, auth).status_code for _ in range(3)] == [200] * 3


def test_drained_by_name_and_let_in_again(stack: Project) -> None:
    stack.stack("drain", "vllm", timeout=120)
    assert readiness(stack) == 503
    stack.stack("resume", "vllm")
    assert readiness(stack) == 200


def test_swap_under_load_there_and_not_there(stack: Project) -> None:
    """A model that does not come up gives way to the one before; the next one serves. No request
    fails, and neither the gateway nor nginx is made anew."""
    shutil.copytree(MODEL, stack.root / ".run/models/second", symlinks=False)
    before = {name: stack.container(name) for name in LONG_RUNNING}
    env = (stack.root / ".env").read_bytes()
    key = stack.stack("key", "show", "default").stdout.strip()
    with Callers(int(stack.url.rpartition(":")[2]), key, loops=2, every_s=2) as clients:
        broken = ("swap", "/models/second", "VLLM_EXTRA_ARGS=--dtype nonsense")
        failed = stack.stack(*broken, check=False, timeout=3 * ENGINE_START_S)
        assert failed.returncode == 1
        assert "--dtype" in failed.stderr.splitlines()[-1]
        assert "back: auto serves again" in failed.stdout
        assert (stack.root / ".env").read_bytes() == env
        stack.stack("swap", "/models/second", timeout=2 * ENGINE_START_S)
    assert clients.failed == []
    assert clients.models == {"SmolLM2-135M-Instruct", "second"}
    after = {name: stack.container(name) for name in LONG_RUNNING}
    changed = {name for name in LONG_RUNNING if before[name] != after[name]}
    assert changed == {"vllm"}


def test_down_leaves_nothing_running(stack: Project) -> None:
    """The downloaded models stay; containers, networks and the port do not."""
    began = time.monotonic()
    stack.stack("down", timeout=180)
    assert time.monotonic() - began < 60
    assert {one.split()[0] for one in stack.leftovers()} <= {"volume"}
    with pytest.raises(httpx.TransportError):
        httpx.get(stack.url, timeout=2)
