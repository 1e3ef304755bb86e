"""The launcher with the real CPU engine and the real embedded model, for tests."""

from __future__ import annotations

import contextlib
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
from launcher.model import manifest

from common.net import free_port

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
        command = [engine_python, "-m", "launcher.model.embedded", str(folder)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "docker/engine")}
        subprocess.run(command, env=environ, check=True, timeout=240)
    return folder


class Running:
    """The launcher over the real engine, with a fresh status for every question. `ports`: of the
    engine and of its status; None: free ones.
    """

    def __init__(
        self,
        python: str,
        folder: Path,
        model: Path,
        ports: tuple[int, int] | None = None,
        **environ: str,
    ) -> None:
        made = manifest.Manifest("auto", "", "SmolLM2-135M-Instruct", str(model), None)
        manifest.write(folder / "models", made)
        self.ports = port, status_port = ports or (free_port(), free_port())
        self.engine = f"http://127.0.0.1:{port}"
        self.status_url = f"http://127.0.0.1:{status_port}/"
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

    def kill(self) -> None:
        """At once and with all of its processes, as when their container is killed."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """In order, so that no process of the engine is left."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()


def descendants(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]
