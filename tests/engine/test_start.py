"""The launcher with the real CPU engine and the real embedded model: start, answer, stop."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from common.engine import START_S, Running, embedded_model, get
from launcher import canary

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


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
        asked = answer["usage"]["completion_tokens"] + canary.TOKENS
        assert status["generation_tokens_total"] == asked
        assert f"engine: canary: {canary.TOKENS} tokens in " in running.errors.read_text()
        assert status["served_model_names"] == ["SmolLM2-135M-Instruct", "default"]
        assert status["kv_cache"]["tokens"] == 46_592
        assert status["engine_version"]
        assert status["graphs"]["verdict"] == "not applicable"
        assert "CPU" in status["graphs"]["reason"]
        # The plugin is loaded by the real vLLM: its worker reported, and counts its steps.
        assert status["graphs"]["workers"] == 1
        assert status["graphs"]["captured"] == 0
        assert status["graphs"]["steps"]["decode"]["NONE"] > 0
        assert status["graphs"]["steps"]["prefill"]["NONE"] > 0
        assert status["start"]["seconds"] > 1
        assert status["start"]["compile_cache"] is None  # eager: nothing is compiled
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
