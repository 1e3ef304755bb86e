"""The launcher as a process, over a scripted program in vLLM's place (scripted_vllm)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from launched import Launcher, Start

LOGS = Path(__file__).parent / "logs"


def test_a_whole_life(start: Start) -> None:
    launcher = start("drains", HF_TOKEN="hf_secret", MAX_NUM_SEQS="64")
    status = launcher.wait_for("ready")
    assert status["ready"] is True
    assert status["served_model_names"] == ["Tiny", "default"]
    assert status["engine_version"] == "0.24.0"
    assert status["kv_cache"] == {
        "tokens": 1_930_480, "usage": 0.25, "predicted_tokens": None, "difference": None,
    }  # fmt: skip
    assert 0 < status["start"]["seconds"] < 60
    assert (status["debug"], status["api_servers"]) == (False, 1)
    assert (status["max_num_seqs"], status["running"], status["waiting"]) == (64, 3, 1)
    assert (status["prompt_tokens_total"], status["generation_tokens_total"]) == (37, 8)
    assert status["graphs"]["verdict"] == "not applicable"
    assert status["started"] <= status["since"] <= time.time()
    assert launcher.status("/status")["phase"] == "ready"
    environ = Path(f"/proc/{launcher.pids()[0]}/environ").read_bytes()
    assert b"hf_secret" not in environ
    assert b"HF_HUB_OFFLINE=1" in environ
    health = [sys.executable, "-m", "launcher.healthcheck"]
    assert subprocess.run(health, env=launcher.environ, check=False).returncode == 0
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.wait_for("draining")["ready"] is False
    launcher.idle()
    assert launcher.ended() == 0
    assert launcher.leaves_nothing()
    done = subprocess.run(health, env=launcher.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    # vLLM's output comes through as it is, ours goes to stderr.
    assert launcher.output.read_text().startswith("(EngineCore pid=1) INFO 11-30 22:27:54 [core")
    assert launcher.output.read_text().endswith("stopping\n")
    assert "engine: ready: serving Tiny, default" in launcher.errors.read_text()


def test_an_engine_that_ends_by_itself_is_no_success(start: Start) -> None:
    launcher = start("exit0")
    assert launcher.ended() == 1
    assert launcher.last_error() == "engine: failed: vLLM ended by itself with exit status 0"


def test_an_engine_that_dies_at_work_says_why(start: Start) -> None:
    launcher = start("dies later")
    launcher.wait_for("ready")
    Path(f"{launcher.pids_file}.die").touch()
    assert launcher.ended() == 1
    assert launcher.last_error() == (
        "engine: failed: RuntimeError: CUDA error: an illegal memory access was encountered"
    )
    assert launcher.leaves_nothing()


def test_an_engine_killed_by_a_signal(start: Start) -> None:
    launcher = start("killed")
    assert launcher.ended() == 128 + signal.SIGKILL
    assert "killed by SIGKILL" in launcher.last_error()
    assert launcher.leaves_nothing()


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ("failed-kv-cache", "ValueError: To serve at least one request"),
        ("failed-weights", "SafetensorError: Error while deserializing header"),
        ("failed-heads", "Total number of attention heads (9) must be divisible"),
    ],
)
def test_a_trace_becomes_one_line(start: Start, trace: str, reason: str) -> None:
    launcher = start("trace", TRACE=str(LOGS / f"{trace}.log"))
    assert launcher.ended() == 1
    assert launcher.last_error().startswith(f"engine: failed: {reason}")
    assert launcher.leaves_nothing()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_kills_at_once(start: Start, number: signal.Signals) -> None:
    launcher = start("stubborn", ENGINE_DRAIN_S="600")
    launcher.wait_for("ready")
    launcher.process.send_signal(number)
    launcher.wait_for("draining")
    launcher.process.send_signal(number)
    assert launcher.ended(10) == 128 + signal.SIGKILL
    assert launcher.leaves_nothing()


def test_a_stop_while_it_loads(start: Start) -> None:
    launcher = start("loading")
    launcher.pids()
    launcher.wait_for("loading")
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.ended(10) == 1
    assert launcher.last_error() == "engine: stopped: stopped, exit status 1"
    assert launcher.leaves_nothing()


def test_a_killed_launcher_leaves_no_engine(start: Start) -> None:
    launcher = start("drains")
    launcher.wait_for("ready")
    launcher.process.kill()
    assert launcher.leaves_nothing()


def test_a_reader_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, "drains")
    launcher.process.kill()
    launcher.process.wait()
    source, sink = os.pipe()
    launcher.pids_file.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher"],
        env=launcher.environ,
        stdout=sink,
        stderr=subprocess.DEVNULL,
    )
    os.close(source)
    os.close(sink)
    launcher.wait_for("ready")
    launcher.idle()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for name in ("ENGINE_PORT", "ENGINE_STATUS_PORT"):
            folder = tmp_path / name
            folder.mkdir()
            launcher = Launcher(folder, "drains", **{name: port})
            assert launcher.ended() == 3
            assert launcher.last_error().startswith(f"{name}: found port {port} unusable")


def test_several_api_servers_need_vllms_own_command(start: Start) -> None:
    launcher = start("drains", API_SERVER_COUNT="2")
    assert launcher.ended() == 3
    assert launcher.last_error().startswith("API_SERVER_COUNT: found 2; wanted 1")


def test_a_cache_that_is_not_there(start: Start) -> None:
    launcher = start("drains", ENGINE_CACHE_DIR="/proc/1/nothing")
    assert launcher.ended() == 3
    assert launcher.last_error().startswith("/proc/1/nothing: found not writable")


def test_only_the_status_is_served(start: Start) -> None:
    launcher = start("drains")
    launcher.wait_for("ready")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://127.0.0.1:{launcher.status_port}/etc", timeout=5)
    assert error.value.code == 404
    error.value.close()
