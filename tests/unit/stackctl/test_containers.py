"""What Docker says of the containers, and when it is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from common.checkout import Checkout
from stackctl import containers, reasons
from stackctl.containers import Containers, Watch
from stackctl.errors import StackError

Fake = Callable[..., None]
PS = (Path(__file__).parent / "data" / "docker-compose-ps.jsonl").read_text(encoding="utf-8")
ROWS = [
    {**json.loads(line), "Service": name, "State": "running", "ExitCode": 0}
    for name, line in zip(("gateway", "vllm", "nginx"), PS.splitlines(), strict=True)
]
RUNNING = json.dumps(ROWS)
COUNT = ["inspect", "--format", "{{.RestartCount}}"]


@pytest.fixture
def of_host(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Containers:
    monkeypatch.setenv("PATH", str(checkout.bin))
    monkeypatch.setattr(containers, "PAUSE_S", 0.0)
    return Containers(checkout.root)


def test_docker_time() -> None:
    assert containers.parse_time("2027-01-15T08:00:00.123456789Z") == 1_800_000_000
    assert containers.parse_time("") == 0.0


def test_ps_of_both_forms() -> None:
    lines = containers.parse_ps(PS)
    rows = ",".join(PS.splitlines())
    assert containers.parse_ps(f"[{rows}]") == lines
    assert {c.service: c.published for c in lines} == {"gateway": (), "model": (), "nginx": (8080,)}
    assert [c.exit_code for c in lines] == [0, 14, 0]
    assert containers.parse_ps("") == []


def test_a_container_of_compose_run_is_not_the_service() -> None:
    once = {**ROWS[1], "State": "exited", "Labels": "a=b,com.docker.compose.oneoff=True"}
    found = {c.service: c.state for c in containers.parse_ps(json.dumps([*ROWS, once]))}
    assert found == {"gateway": "running", "vllm": "running", "nginx": "running"}


def test_docker_that_does_not_answer_once_is_no_reason_to_stop(
    of_host: Containers, fake: Fake
) -> None:
    well = [(["compose", "ps"], 0, RUNNING, ""), (COUNT, 0, "0\n", "")]
    busy = [(["compose", "ps"], 1, "", "daemon is busy\n")]
    fake("docker", well)
    watch = Watch(of_host, str)
    fake("docker", busy)
    assert [watch() for _ in range(containers.PATIENCE - 1)] == [None] * (containers.PATIENCE - 1)
    fake("docker", well)
    assert watch() is None
    fake("docker", busy)
    answers = [watch() for _ in range(containers.PATIENCE)]
    assert answers[:-1] == [None] * (containers.PATIENCE - 1)
    assert "5 times in a row: docker compose ps: daemon is busy" in str(answers[-1])


def test_a_watch_begun_while_docker_was_busy_is_not_misled(of_host: Containers, fake: Fake) -> None:
    fake("docker", [(["compose", "ps"], 1, "", "busy\n")])
    watch = Watch(of_host, str)
    fake("docker", [(["compose", "ps"], 0, RUNNING, ""), (COUNT, 0, "7\n", "")])
    assert watch() is None  # seven restarts of some life before
    fake("docker", [(["compose", "ps"], 0, RUNNING, ""), (COUNT, 0, "8\n", "")])
    assert watch() == "vllm stopped: vllm"


def test_a_service_that_is_gone_is_gone_at_once(of_host: Containers, fake: Fake) -> None:
    fake("docker", [(["compose", "ps"], 0, json.dumps(ROWS[:2]), ""), (COUNT, 0, "0\n", "")])
    assert Watch(of_host, str)() == "nginx stopped: nginx"


def test_an_answer_that_is_no_json(of_host: Containers, fake: Fake) -> None:
    fake("docker", [(["compose", "ps"], 0, "[oops", "")])
    with pytest.raises(StackError, match="no JSON"):
        of_host.ask()
    assert of_host.started_at("vllm") == 0.0
    assert of_host.described()["vllm"].startswith("unknown (docker compose ps")


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            'could not select device driver "nvidia" with capabilities: [[gpu]]',
            "nvidia-ctk runtime configure",
        ),
        (
            "failed to discover GPU vendor from CDI: no known GPU vendor found",
            "nvidia-ctk runtime configure",
        ),
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0",
            "VLLM_IMAGE=vllm/vllm-openai:v0.32.0-cu129",
        ),
        ("nvml error: driver/library version mismatch: unknown", "fix: reboot"),
    ],
)
def test_what_docker_says_of_a_gpu(said: str, fix: str) -> None:
    assert fix in reasons.telling(["Error response from daemon: " + said, "exit status 1"])
