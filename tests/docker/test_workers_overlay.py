"""The stack with several gateway workers and Valkey, as containers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from common.compose import CPU
from common.docker_project import Project, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

FILES = f"{CPU}:tests/docker/slow.yml:compose/workers.yml"
CHAT = {"model": "slow", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}


@pytest.fixture(scope="module")
def running(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    root: Path = tmp_path_factory.mktemp("workers")
    settings = {"COMPOSE_FILE": FILES, "STACK_MODE": "cpu", "GATEWAY_WORKERS": "3"}
    with Project.create(root, settings) as project:
        project.stack("init")
        project.build("nginx", "gateway")
        services = ("nginx", "gateway", "vllm", "valkey")
        project.compose("up", "-d", "--wait", *services, timeout=120)
        yield project


def shared(project: Project) -> set[str]:
    """What the workers say; each answer comes from one of them."""
    asked = [httpx.get(f"{project.url}/status", timeout=5).json() for _ in range(10)]
    return {one["gateway"]["shared_state"] for one in asked}


def chat(project: Project) -> int:
    key = project.stack("key", "show", "default").stdout.strip()
    answer = httpx.post(
        f"{project.url}/v1/chat/completions",
        json=CHAT,
        headers={"Authorization": f"Bearer {key}"},
        timeout=30,
    )
    return answer.status_code


def test_workers_count_together_and_serve_without_valkey_too(running: Project) -> None:
    wait_until(lambda: shared(running) == {"ok"}, 30, "all workers with Valkey")
    assert chat(running) == 200
    running.compose("stop", "--timeout", "1", "valkey")
    wait_until(lambda: shared(running) == {"down"}, 30, "all workers without it")
    assert chat(running) == 200
    running.compose("start", "valkey")
    wait_until(lambda: shared(running) == {"ok"}, 30, "all workers with it again")


def test_valkey_is_hardened_and_keeps_nothing(running: Project) -> None:
    found = running.inspect("valkey")
    assert found["HostConfig"]["ReadonlyRootfs"] is True
    assert found["Config"]["User"] == "999:1000"
    assert not found["HostConfig"]["PortBindings"]
    assert [mount for mount in found["Mounts"] if mount["Type"] == "volume"] == []
    saved = running.exec("valkey", "valkey-cli", "config", "get", "save").stdout.split()
    assert saved == ["save"]
    assert running.exec("valkey", "id", "-u").stdout.strip() == "999"


def test_a_killed_worker_is_replaced_and_the_container_goes_on(running: Project) -> None:
    program = (
        "import os, signal, pathlib\n"
        "pids = [int(p.name) for p in pathlib.Path('/proc').iterdir() if p.name.isdigit()]\n"
        "of = lambda p: pathlib.Path(f'/proc/{p}/cmdline').read_bytes()\n"
        "workers = [p for p in pids if p != os.getpid() and b'gateway.worker' in of(p)]\n"
        "os.kill(workers[0], signal.SIGKILL)\n"
        "print(len(workers))"
    )
    started = running.inspect("gateway")["State"]["StartedAt"]
    assert running.exec("gateway", "python", "-c", program).stdout.strip() == "3"
    wait_until(lambda: "signal 9" in running.logs("gateway"), 10, "the manager saw it")
    assert chat(running) == 200
    wait_until(lambda: "3 workers again" in running.logs("gateway"), 60, "another one serves")
    assert running.inspect("gateway")["State"]["StartedAt"] == started


def test_a_stop_is_in_order(running: Project) -> None:
    """Last of this module. One JSON line each, and no worker that had to be killed."""
    began = time.monotonic()
    running.compose("stop", "gateway")
    assert time.monotonic() - began < 30
    assert running.inspect("gateway")["State"]["ExitCode"] == 0
    logged = running.compose("logs", "--no-color", "--no-log-prefix", "gateway").stdout
    lines = [json.loads(line) for line in logged.splitlines()]
    assert sum("drained" in line.get("message", "") for line in lines) == 3
