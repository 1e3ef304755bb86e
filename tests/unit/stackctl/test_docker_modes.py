"""`up`, `status` and `down` in Docker modes, against a docker that answers from a list."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from common.checkout import Checkout
from stackctl import compose, reasons
from stackctl.layout import Layout

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


def host(checkout: Checkout) -> Answers:
    # Not the first run, so that the test does not depend on how much disk this host has.
    (checkout.root / ".run" / "mode").write_text("cpu\n")
    return [
        (["version"], 0, "28.2.2\n", ""),
        (["compose", "version"], 0, "2.40.3\n", ""),
        (["info"], 0, f"{checkout.root}\n", ""),
        (["inspect", "--format", "{{.RestartCount}}"], 0, "0\n", ""),
        (["inspect", "--format", "{{.State.StartedAt}}"], 0, "2027-01-15T08:00:00.1Z\n", ""),
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


def test_docker_time() -> None:
    assert compose.parse_time("2027-01-15T08:00:00.123456789Z") == 1_800_000_000
    assert compose.parse_time("") == 0.0


def test_ps_of_both_forms() -> None:
    lines = compose.parse_ps(PS)
    rows = ",".join(PS.splitlines())
    assert compose.parse_ps(f"[{rows}]") == lines
    assert {c.service: c.published for c in lines} == {"gateway": (), "model": (), "nginx": (8080,)}
    assert [c.exit_code for c in lines] == [0, 14, 0]
    assert compose.parse_ps("") == []


def test_a_gateway_that_refuses_its_settings_is_asked_before_anything_changes(
    checkout: Checkout, fake: Fake
) -> None:
    line = "GATEWAY_DRAIN_S: found '900'; wanted 0 to 600; fix: correct it"
    fake(
        "docker",
        [
            *host(checkout),
            (["compose", "--progress"], 0, "", ""),
            ([*CHECK, "--check"], 2, "", f" Container x Creating\n{line}\n"),
            (["compose", "ps"], 0, RUNNING, ""),
        ],
    )
    done = checkout.stack("up")
    assert (done.returncode, done.stderr) == (2, f"stack: {line}\n")
    assert not any(call.startswith(("compose up", "compose down")) for call in calls(checkout))


def test_a_container_of_compose_run_is_not_the_service() -> None:
    rows = [json.loads(line) for line in RUNNING.splitlines()]
    once = {**rows[1], "State": "exited", "Labels": "a=b,com.docker.compose.oneoff=True"}
    found = {c.service: c.state for c in compose.parse_ps(json.dumps([*rows, once]))}
    assert found == {"gateway": "running", "vllm": "running", "nginx": "running"}


def test_docker_that_does_not_answer_once_is_no_reason_to_stop(
    checkout: Checkout, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("docker", [*host(checkout), (["compose", "ps"], 0, RUNNING, "")])
    monkeypatch.setenv("PATH", str(checkout.bin))
    trouble = compose.ComposeStack(Layout(checkout.root)).watch()
    assert trouble() is None
    fake("docker", [*host(checkout), (["compose", "ps"], 1, "", "daemon is busy\n")])
    answers = [trouble() for _ in range(compose.PATIENCE)]
    assert answers[:-1] == [None] * (compose.PATIENCE - 1)
    assert answers[-1] == "docker compose ps: daemon is busy"


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            'could not select device driver "nvidia" with capabilities: [[gpu]]',
            "nvidia-ctk runtime configure",
        ),
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0",
            "VLLM_IMAGE=vllm/vllm-openai:v0.32.0-cu129",
        ),
    ],
)
def test_a_gpu_that_docker_cannot_hand_over(said: str, fix: str) -> None:
    assert fix in reasons.telling(["Error response from daemon: " + said, "exit status 1"])
