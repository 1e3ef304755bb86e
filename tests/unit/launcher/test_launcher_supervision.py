"""The launcher as a process, over a scripted program in vLLM's place (scripted_vllm)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import scripted_vllm
from common.net import free_port
from launcher import manifest

ROOT = Path(__file__).resolve().parents[3]
LOGS = Path(__file__).parent / "logs"


def until(condition: Callable[[], object], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Launcher:
    """A launcher in a folder of its own, with free ports."""

    def __init__(self, folder: Path, script: str, **environ: str) -> None:
        scripted_vllm.install(folder / "site")
        (folder / "model").mkdir()
        made = manifest.Manifest("auto", "", "Tiny", str(folder / "model"), None)
        manifest.write(folder / "models", made)
        self.port, self.status_port = free_port(), free_port()
        self.pids_file = folder / "pids"
        self.output, self.errors = folder / "out", folder / "err"
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{folder / 'site'}:{ROOT / 'docker/engine'}",
            "SCRIPT": script,
            "PIDS": str(self.pids_file),
            "ENGINE_DEVICE": "cpu",
            "ENGINE_HOST": "127.0.0.1",
            "ENGINE_PORT": str(self.port),
            "ENGINE_STATUS_PORT": str(self.status_port),
            "ENGINE_MODELS_DIR": str(folder / "models"),
            "ENGINE_DRAIN_S": "5",
            "VLLM_EXTRA_ARGS": "--kv-cache-memory-bytes 1M",
            **environ,
        }
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "launcher"], env=self.environ, stdout=out, stderr=err
            )

    def pids(self) -> list[int]:
        assert until(
            lambda: self.pids_file.exists() and len(self.pids_file.read_text().split()) == 2
        )
        return [int(pid) for pid in self.pids_file.read_text().split()]

    def status(self, path: str = "/") -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.status_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                value: dict[str, Any] = json.load(answer)
                return value
        except urllib.error.URLError:
            return {}

    def wait_for(self, phase: str) -> dict[str, Any]:
        assert until(lambda: self.status().get("phase") == phase), self.errors.read_text()
        return self.status()

    def ended(self, seconds: float = 30) -> int:
        return self.process.wait(seconds)

    def last_error(self) -> str:
        return self.errors.read_text().splitlines()[-1]

    def leaves_nothing(self) -> bool:
        return until(lambda: not any(alive(pid) for pid in self.pids()), 5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Launcher]]:
    started: list[Launcher] = []

    def begin(script: str, **environ: str) -> Launcher:
        started.append(Launcher(tmp_path, script, **environ))
        return started[-1]

    yield begin
    for launcher in started:
        launcher.process.kill()  # its guard ends the rest
        launcher.process.wait()


Start = Callable[..., Launcher]


def test_a_whole_life(start: Start) -> None:
    launcher = start("drains", HF_TOKEN="hf_secret", MAX_NUM_SEQS="64")
    status = launcher.wait_for("ready")
    assert status["ready"] is True
    assert status["served_model_names"] == ["Tiny", "default"]
    assert status["engine_version"] == "0.24.0"
    assert status["kv_cache"] == {"tokens": 1_930_480, "usage": 0.25}
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
    launcher = start("drains", VLLM_CACHE_ROOT="/proc/1/nothing")
    assert launcher.ended() == 3
    assert launcher.last_error().startswith("/proc/1/nothing: found not writable")


def test_only_the_status_is_served(start: Start) -> None:
    launcher = start("drains")
    launcher.wait_for("ready")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://127.0.0.1:{launcher.status_port}/etc", timeout=5)
    assert error.value.code == 404
    error.value.close()
