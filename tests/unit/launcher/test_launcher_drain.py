"""Draining: by a stop, and by name. And the one generation before the engine is ready."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from launched import Launcher, Start, until
from launcher import canary, drain
from launcher.status.metrics import Numbers

IDLE, BUSY = Numbers(running=0, waiting=0), Numbers(running=1, waiting=0)


def test_vllm_is_told_to_stop_only_when_it_runs_nothing(start: Start) -> None:
    launcher = start("drains", ENGINE_DRAIN_S="120")
    launcher.wait_for("ready")
    launcher.process.send_signal(signal.SIGTERM)
    launcher.wait_for("draining")
    time.sleep(drain.NOTICE_S + 1)
    assert "stopping" not in launcher.output.read_text()
    assert launcher.status()["running"] == 3
    launcher.idle()
    assert launcher.ended(10) == 0
    assert launcher.output.read_text().endswith("stopping\n")


def test_gateways_see_it_before_vllm_stops(start: Start) -> None:
    """An idle engine, too: a request may be on its way."""
    launcher = start("drains")
    launcher.wait_for("ready")
    launcher.idle()
    launcher.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert launcher.wait_for("draining")["ready"] is False
    assert launcher.ended(20) == 0
    assert time.monotonic() - began >= drain.NOTICE_S


def test_drained_by_name_and_let_in_again(start: Start) -> None:
    launcher = start("drains")
    assert launcher.wait_for("ready")["admitting"] is True
    launcher.process.send_signal(signal.SIGUSR1)
    status = launcher.wait_for("draining")
    assert (status["ready"], status["admitting"], status["running"]) == (False, False, 3)
    assert status["message"].startswith("drained: no new requests")
    assert 'engine_phase{phase="draining"} 1' in launcher.metrics()
    health = [sys.executable, "-m", "launcher.healthcheck"]
    assert subprocess.run(health, env=launcher.environ, check=False).returncode == 0
    launcher.process.send_signal(signal.SIGUSR2)
    assert launcher.wait_for("ready")["ready"] is True
    assert "engine: draining: drained" in launcher.errors.read_text()
    launcher.process.send_signal(signal.SIGUSR1)
    launcher.wait_for("draining")
    launcher.idle()
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.ended() == 0


def test_drained_before_it_is_ready(start: Start) -> None:
    launcher = start("loading")
    launcher.wait_for("loading")
    launcher.process.send_signal(signal.SIGUSR1)
    assert until(lambda: launcher.status()["admitting"] is False)
    assert launcher.status()["phase"] == "loading"


def test_the_wait_ends_when_nothing_runs_twice_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "NOTICE_S", 0.0)
    monkeypatch.setattr(drain, "LOOK_EVERY_S", 0.0)
    looks = iter([IDLE, BUSY, Numbers(), IDLE, IDLE, BUSY])
    assert drain.quiet(lambda: next(looks), 60, threading.Event())
    assert next(looks) is BUSY


def test_the_wait_has_an_end() -> None:
    assert not drain.quiet(lambda: BUSY, 0.0, threading.Event())
    ended = threading.Event()
    ended.set()
    assert not drain.quiet(lambda: IDLE, 60, ended)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([500, {"error": {"message": "EngineCore\nencountered an issue"}}],
         "failed with HTTP 500: EngineCore encountered an issue"),
        ([200, {"usage": {"completion_tokens": 0}}], "came back without a token"),
        ([0, None], "broke off 3 times (RemoteDisconnected)"),
    ],
)  # fmt: skip
def test_an_engine_that_cannot_generate_never_gets_ready(
    start: Start, answer: list[object], reason: str
) -> None:
    launcher: Launcher = start("drains", CANARY=json.dumps(answer))
    assert launcher.ended() not in (0, None)
    told = launcher.errors.read_text()
    assert "engine: ready" not in told
    assert f"engine: failed: canary: the first generation {reason}" in told
    assert launcher.leaves_nothing()


@pytest.mark.parametrize("status", [400, 404])
def test_a_model_that_completes_no_text_is_not_asked_to(start: Start, status: int) -> None:
    launcher = start("drains", CANARY=json.dumps([status, {"detail": "Not Found"}]))
    launcher.wait_for("ready")
    assert f"canary: left out: this model completes no text (HTTP {status})" in (
        launcher.errors.read_text()
    )


def test_what_an_answer_says() -> None:
    good = json.dumps({"usage": {"completion_tokens": 4}}).encode()
    assert canary.judge(200, good, 0.5) == canary.Verdict(False, "4 tokens in 0.50 s")
    for body in (b"", b"null", b"[]", b'{"usage": null}', b"\xff"):
        assert canary.judge(200, body, 0.5).failed
        assert canary.judge(502, body, 0.5).failed
