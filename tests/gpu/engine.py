"""The project's own launcher, and vLLM without it, as processes that are always ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STOP_S = 60.0


@dataclass(frozen=True)
class Place:
    """Folders of one run: where files may lie, and the compile caches that warm starts share."""

    work: Path
    caches: Path


def environment(place: Place, device: str, extra: Mapping[str, str]) -> dict[str, str]:
    """What a launcher gets, as in local mode; the host's own PYTHONPATH (vLLM) stays."""
    paths = [str(ROOT / "docker/engine"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
        "ENGINE_DEVICE": device,
        "ENGINE_HOST": "127.0.0.1",
        "ENGINE_MODELS_DIR": str(place.work / "models"),
        "ENGINE_CACHE_DIR": str(place.caches),
        "TMPDIR": str(place.work),
        **extra,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Launched:
    """A launcher that runs."""

    process: subprocess.Popen[bytes]
    port: int
    status_port: int
    errors: Path
    output: Path

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.page(self.status_port, "/status")))
        except (OSError, ValueError):
            return {}

    def page(self, port: int, path: str) -> str:
        url = f"http://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def last_line(self) -> str:
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def until(self, done: str, limit_s: float) -> dict[str, Any]:
        """The status once it is ready, or (done=kv) once vLLM told its KV cache; the last one
        where the launcher ended or the time did."""
        end = time.monotonic() + limit_s
        told: dict[str, Any] = {}
        while time.monotonic() < end and self.process.poll() is None:
            told = self.status() or told
            ready = told.get("phase") == "ready"
            if ready or (done == "kv" and (told.get("kv_cache") or {}).get("tokens")):
                return told
            time.sleep(0.3)
        return told


@contextlib.contextmanager
def launched(place: Place, device: str, extra: Mapping[str, str]) -> Iterator[Launched]:
    """Start a launcher; it and all it started are gone afterwards."""
    port, status_port = free_port(), free_port()
    env = environment(place, device, extra) | {
        "ENGINE_PORT": str(port),
        "ENGINE_STATUS_PORT": str(status_port),
    }
    errors, output = place.work / "launcher.err", place.work / "launcher.out"
    with errors.open("wb") as err, output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher"], env=env, stdout=out, stderr=err, process_group=0
        )
    try:
        yield Launched(process, port, status_port, errors, output)
    finally:
        ended(process)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code: told to stop, then killed with its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def direct(place: Place, model: Path, words: list[str], limit_s: float) -> tuple[int, str, bool]:
    """vLLM itself with the plugin and graphs required: exit code, its output, and whether it ever
    answered."""
    proof = place.work / "proof-direct"
    proof.mkdir(exist_ok=True)
    port = free_port()
    env = environment(place, "cuda", {"ENGINE_PROOF_DIR": str(proof), "ENGINE_REQUIRE_GRAPHS": "1"})
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model),
               "--host", "127.0.0.1", "--port", str(port), *words]  # fmt: skip
    output = place.work / "direct.out"
    with output.open("wb") as out:
        process = subprocess.Popen(
            command, env=env, stdout=out, stderr=subprocess.STDOUT, process_group=0
        )
    answered, end = False, time.monotonic() + limit_s
    try:
        while process.poll() is None and time.monotonic() < end and not answered:
            answered = _answers(port)
            time.sleep(0.5)
    finally:
        code = ended(process)
    return code, output.read_text(errors="replace"), answered


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return True
    except (OSError, urllib.error.URLError):
        return False


def memory_used() -> list[int]:
    """MiB in use on each GPU; empty without nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return [int(line) for line in done.stdout.split("\n") if line.strip().isdecimal()]
