"""The launcher with the real CPU engine and the real embedded model: start, answer, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from common.net import free_port
from launcher import manifest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
START_S = 240  # 35 s on two idle cores


def get(url: str, body: dict[str, object] | None = None) -> dict[str, Any]:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(  # noqa: S310 - loopback
        url, data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        value: dict[str, Any] = json.load(answer)
        return value


def embedded_model(engine_python: str, scratch: Path) -> Path:
    """Local mode's copy of the model where there is one, else a new one."""
    existing = os.environ.get("STACK_EMBEDDED_MODEL", "").strip()
    folder = Path(existing) if existing else ROOT / ".run/models/smollm2-135m-instruct"
    if not (folder / "model.safetensors").is_file():
        folder = scratch / "smollm2-135m-instruct"
        command = [engine_python, "-m", "launcher.embedded", str(folder)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "docker/engine")}
        subprocess.run(command, env=environ, check=True, timeout=240)
    return folder


class Running:
    """The launcher over the real engine, with a fresh status for every question."""

    def __init__(self, python: str, folder: Path, model: Path, **environ: str) -> None:
        made = manifest.Manifest("auto", "", "SmolLM2-135M-Instruct", str(model), None)
        manifest.write(folder / "models", made)
        self.engine = f"http://127.0.0.1:{(port := free_port())}"
        self.status_url = f"http://127.0.0.1:{(status_port := free_port())}/"
        self.errors = folder / "err"
        with self.errors.open("wb") as errors, (folder / "out").open("wb") as output:
            self.process = subprocess.Popen(
                [python, "-m", "launcher"],
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(folder),
                    "PYTHONPATH": str(ROOT / "docker/engine"),
                    "ENGINE_DEVICE": "cpu",
                    "ENGINE_HOST": "127.0.0.1",
                    "ENGINE_PORT": str(port),
                    "ENGINE_STATUS_PORT": str(status_port),
                    "ENGINE_MODELS_DIR": str(folder / "models"),
                    "VLLM_CACHE_ROOT": str(folder / "cache"),
                    "HF_TOKEN": "hf_mustnotbeseen",
                    **environ,
                },
                stdout=output,
                stderr=errors,
            )

    def status(self) -> dict[str, Any]:
        try:
            return get(self.status_url)
        except urllib.error.URLError:
            return {}

    def until_ready(self) -> set[str]:
        """The phases seen on the way."""
        seen: set[str] = set()
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            seen.add(self.status().get("phase", ""))
            if "ready" in seen:
                return seen
            time.sleep(0.2)
        pytest.fail(f"not ready: {self.errors.read_text()}")


def in_group_of(pid: int) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == pid and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


def test_it_serves_and_stops(engine_python: str, tmp_path: Path) -> None:
    running = Running(engine_python, tmp_path, embedded_model(engine_python, tmp_path))
    try:
        seen = running.until_ready()
        assert {"loading", "ready"} <= seen
        body: dict[str, object] = {
            "model": "default",
            "temperature": 0,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
        }
        answer = get(f"{running.engine}/v1/chat/completions", body)
        assert "Paris" in answer["choices"][0]["message"]["content"]
        time.sleep(1.1)  # the numbers are at most a second old
        status = running.status()
        assert status["generation_tokens_total"] == answer["usage"]["completion_tokens"]
        assert status["served_model_names"] == ["SmolLM2-135M-Instruct", "default"]
        assert status["kv_cache"]["tokens"] == 46_592
        assert status["engine_version"]
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
        guard, engine = sorted(map(int, children.read_text().split()))[:2]
        environ = Path(f"/proc/{engine}/environ").read_bytes()
        assert b"hf_mustnotbeseen" not in environ
        assert len(in_group_of(guard)) >= 3  # the guard, the API server, its EngineCore
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
        assert in_group_of(guard) == []
    finally:
        running.process.kill()
        running.process.wait()


def test_a_start_that_fails_says_why(engine_python: str, tmp_path: Path) -> None:
    model = embedded_model(engine_python, tmp_path)
    running = Running(engine_python, tmp_path, model, MAX_MODEL_LEN="999999")
    try:
        assert running.process.wait(START_S) == 1
        last = running.errors.read_text().splitlines()[-1]
        assert last.startswith("engine: failed: User-specified max_model_len (999999)")
    finally:
        running.process.kill()
        running.process.wait()
