"""`up`, `status` and `down` in Docker modes, against a docker that answers from a list."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from common.checkout import Checkout

DATA = Path(__file__).parent / "data"
Fake = Callable[..., None]
Answers = list[tuple[list[str], int, str, str]]
PS = (DATA / "docker-compose-ps.jsonl").read_text(encoding="utf-8")
RUNNING = "\n".join(
    json.dumps({**json.loads(line), "Service": name, "State": "running", "ExitCode": 0})
    for name, line in zip(("gateway", "vllm", "nginx"), PS.splitlines(), strict=True)
)
STATUS = {
    "ready": True, "phase": "ready", "message": "serving", "model": "M", "running": 0,
    "served_model_names": ["M", "default"], "waiting": 0, "generation_tokens_total": 8,
    "kv_cache": {"tokens": 1000, "usage": 0.5}, "engine_version": "0.33.0",
    "graphs": {"verdict": "in force", "reason": ""}, "engines": [{"started": 1_800_000_000}],
}  # fmt: skip
CHECK = ["compose", "run", "--rm", "--no-deps", "-T", "gateway", "python", "-m", "gateway"]
CHECKED: tuple[list[str], int, str, str] = ([*CHECK, "--check"], 0, "", "")
GATED = "found a licence that was not accepted; wanted access; fix: accept it on the model's page"


class Front(BaseHTTPRequestHandler):
    """The stack's /status and one canned answer."""

    def do_GET(self) -> None:
        self._send(STATUS)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        STATUS["generation_tokens_total"] = int(str(STATUS["generation_tokens_total"])) + 3
        message = {"role": "assistant", "content": "Paris."}
        self._send({"choices": [{"message": message}], "usage": {"completion_tokens": 3}})

    def _send(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def front() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Front)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def host(checkout: Checkout, started: str = "2027-01-15T08:00:00.1Z") -> Answers:
    # Not the first run, so that the test does not depend on how much disk this host has.
    (checkout.root / ".run" / "mode").write_text("cpu\n")
    return [
        (["version"], 0, "28.2.2\n", ""),
        (["compose", "version"], 0, "2.40.3\n", ""),
        (["info"], 0, f"{checkout.root}\n", ""),
        (["inspect", "--format", "{{.RestartCount}}"], 0, "0\n", ""),
        (["inspect", "--format", "{{.State.StartedAt}}"], 0, f"{started}\n", ""),
    ]


def calls(checkout: Checkout) -> list[str]:
    return (checkout.home / "docker.calls").read_text().splitlines()


def test_up_in_cpu_mode(checkout: Checkout, fake: Fake, front: int) -> None:
    published = [{"PublishedPort": front}]
    rows = [json.loads(line) for line in RUNNING.splitlines()]
    running = "\n".join(json.dumps({**row, "Publishers": published}) for row in rows)
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 0, "#1 built\n", ""),
            CHECKED,
            (["compose", "run"], 0, "model: ready: M in /m\n", ""),
            (["compose", "up"], 0, "", ""),
            (["compose", "ps"], 0, running, ""),
        ],
    )
    checkout.set_env(NGINX_PORT=str(front))
    done = checkout.stack("up")
    assert done.returncode == 0, done.stderr
    assert "mode: cpu (a Docker engine and no GPU)" in done.stdout
    assert "Paris.  (3 tokens, counted by the engine" in done.stdout
    assert "graphs: in force" in done.stdout
    assert "compose/cpu.yml" in (checkout.root / ".env").read_text()
    assert "compose up --detach --no-build --remove-orphans" in calls(checkout)
    report = json.loads(checkout.stack("status", "--json").stdout)
    assert report["mode"] == "cpu"
    assert report["services"]["vllm"].startswith("running")
    fake("docker", [*host(checkout), (["compose", "down"], 0, "", "")])
    assert checkout.stack("down").returncode == 0
    assert calls(checkout)[-1] == "compose down --remove-orphans"


def test_a_first_up_is_recorded_as_done_only_when_it_is(checkout: Checkout, fake: Fake) -> None:
    answers = host(checkout)
    (checkout.root / ".run" / "mode").write_text("local\n")
    fake("docker", [*answers, (["compose", "ps"], 0, "", "")])  # cannot build
    checkout.set_env(NGINX_PORT="18122")
    checkout.stack("up")
    report = json.loads(checkout.stack("doctor", "--json").stdout)
    disk = next(check for check in report["checks"] if check["name"] == "disk")
    assert (checkout.root / ".run" / "mode").read_text() != "cpu\n"
    assert disk["status"] == "ok" or "12 GiB" in disk["wanted"]


def test_an_unchanged_build_keeps_its_digest(checkout: Checkout, fake: Fake) -> None:
    seen = checkout.home / "environment"
    fake("docker", [*host(checkout), (["compose", "ps"], 0, "", "")])
    known = (checkout.bin / "docker").read_text().removeprefix("#!/bin/sh\n")
    note = f'case "$*" in *build) env > {seen} ;; esac\n'
    checkout.program("docker", f"#!/bin/sh\n{note}{known}")
    checkout.set_env(NGINX_PORT="18121")
    checkout.stack("up")
    environment = seen.read_text().splitlines()
    assert "BUILDX_NO_DEFAULT_ATTESTATIONS=1" in environment
    assert not any(line.startswith("PYTHONPATH=") for line in environment)


def test_debug_is_for_one_start(checkout: Checkout, fake: Fake, front: int) -> None:
    seen = checkout.home / "environment"
    rows = [json.loads(line) for line in RUNNING.splitlines()]
    published = [{**row, "Publishers": [{"PublishedPort": front}]} for row in rows]
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 0, "", ""),
            CHECKED,
            (["compose", "run"], 0, "model: ready: M in /m\n", ""),
            (["compose", "up"], 0, "", ""),
            (["compose", "ps"], 0, "\n".join(map(json.dumps, published)), ""),
        ],
    )
    known = (checkout.bin / "docker").read_text().removeprefix("#!/bin/sh\n")
    note = f'case "$*" in *" up "*) env >> {seen} ;; esac\n'
    checkout.program("docker", f"#!/bin/sh\n{note}{known}")
    checkout.set_env(NGINX_PORT=str(front))
    STATUS["debug"] = True
    try:
        done = checkout.stack("up", "--debug")
    finally:
        del STATUS["debug"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("slow on purpose; end it with make up") == 2  # first and last
    assert "ENGINE_DEBUG=1" in seen.read_text().splitlines()
    seen.unlink()
    done = checkout.stack("up")
    assert (done.returncode, "DEBUG" in done.stdout) == (0, False)
    assert "ENGINE_DEBUG" not in seen.read_text()


@pytest.mark.parametrize("where", [".env", "the environment"])
def test_debug_is_no_setting(checkout: Checkout, where: str) -> None:
    shell = {"STACK_MODE": "local"}
    if where == ".env":
        checkout.set_env(ENGINE_DEBUG="1")
    else:
        shell["ENGINE_DEBUG"] = "1"
    done = checkout.stack("up", env=shell)
    assert done.returncode == 1
    assert f"found ENGINE_DEBUG in {where}; wanted no debug mode that is left on" in done.stderr
    assert "scripts/stack up --debug is for one start" in done.stderr


@pytest.mark.parametrize("step", ["run", "up"])
def test_a_gpu_that_docker_cannot_hand_over(checkout: Checkout, fake: Fake, step: str) -> None:
    said = 'Error response from daemon: could not select device driver "nvidia"\n'
    front = ["compose", "up", "--detach", "--no-build", "--no-deps", "nginx", "gateway"]
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 0, "", ""),
            CHECKED,
            (front, 0, "", ""),
            (["compose", step], 125, "", said),
            (["compose", "run"], 0, "model: ready: M in /m\n", ""),
            (["compose", "ps"], 0, "", ""),
            (["compose", "down"], 1, "", "and this fails, too\n"),
        ],
    )
    checkout.set_env(NGINX_PORT="18125")
    done = checkout.stack("up")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "nvidia-ctk runtime configure" in done.stderr


def test_a_download_that_fails_is_the_reason(checkout: Checkout, fake: Fake) -> None:
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 0, "", ""),
            CHECKED,
            (
                ["compose", "up", "--detach", "--no-build", "--no-deps", "nginx", "gateway"],
                0,
                "",
                "",
            ),
            (["compose", "run"], 11, f"model: looking x/y up\n{GATED}\n", ""),
            (["compose", "ps"], 0, "", ""),
            (["compose", "down"], 0, "", ""),
        ],
    )
    checkout.set_env(NGINX_PORT="18123")
    done = checkout.stack("up")
    assert done.returncode == 11
    assert done.stderr == f"stack: {GATED}\n"
    assert calls(checkout)[-1] == "compose down --remove-orphans"
    # nginx and gateway answered meanwhile; the engine was never asked for.
    ups = [call for call in calls(checkout) if call.startswith("compose up")]
    assert ups == ["compose up --detach --no-build --no-deps nginx gateway"]


def test_an_image_that_cannot_be_built(checkout: Checkout, fake: Fake) -> None:
    error = "ERROR: failed to solve: vllm/vllm-openai-cpu:v0.33.0: not found"
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 17, "#1 load\n", error + "\n"),
            (["compose", "ps"], 0, "", ""),
        ],
    )
    done = checkout.stack("up")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert error in done.stderr


def test_a_crash_loop_is_seen_at_once(checkout: Checkout, fake: Fake) -> None:
    row = {**json.loads(PS.splitlines()[1]), "Service": "vllm", "State": "restarting"}
    rows = [line for line in RUNNING.splitlines() if '"vllm"' not in line] + [json.dumps(row)]
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 0, "", ""),
            CHECKED,
            (["compose", "run"], 0, "model: ready: M in /m\n", ""),
            (["compose", "up"], 0, "", ""),
            (["compose", "ps"], 0, "\n".join(rows), ""),
            (["compose", "logs"], 0, "engine: failed: no GPU memory; fix: lower it\n", ""),
            (["compose", "stop"], 0, "", ""),
        ],
    )
    checkout.set_env(NGINX_PORT="18124")
    done = checkout.stack("up", timeout=30)
    assert done.returncode == 1
    assert done.stderr == "stack: vllm stopped: no GPU memory; fix: lower it\n"


def test_a_gateway_that_refuses_its_settings_is_asked_before_anything_changes(
    checkout: Checkout, fake: Fake
) -> None:
    line = "GATEWAY_DRAIN_S: found '900'; wanted 0 to 600; fix: correct it"
    fake(
        "docker",
        [
            *host(checkout, started="2020-01-15T08:00:00.1Z"),
            (["compose", "--progress"], 0, "", ""),
            ([*CHECK, "--check"], 2, "", f" Container x Creating\n{line}\n"),
            (["compose", "ps"], 0, RUNNING, ""),
        ],
    )
    done = checkout.stack("up")
    assert (done.returncode, done.stderr) == (2, f"stack: {line}\n")
    assert not any(
        call.startswith(("compose up", "compose stop", "compose down")) for call in calls(checkout)
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_start_is_undone(checkout: Checkout, fake: Fake, number: int) -> None:
    started = checkout.home / "downloading"
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 0, "", ""),
            CHECKED,
            (["compose", "up"], 0, "", ""),
            (["compose", "ps"], 0, "", ""),
            (["compose", "down"], 0, "", ""),
        ],
    )
    known = (checkout.bin / "docker").read_text().removeprefix("#!/bin/sh\n")
    sleep = 'exec python3 -c "import time; time.sleep(60)"'
    slow = f'case "$*" in *model) : > {started}; {sleep} ;; esac\n'
    checkout.program("docker", f"#!/bin/sh\n{slow}{known}")
    checkout.set_env(NGINX_PORT="18126")
    with subprocess.Popen(
        [checkout.root / "scripts" / "stack", "up"],
        env=checkout.env(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        waited = time.monotonic() + 30
        while not started.exists() and time.monotonic() < waited:
            time.sleep(0.05)
        running.send_signal(number)
        _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, "stack: interrupted\n")
    assert calls(checkout)[-1] == "compose down --remove-orphans"
