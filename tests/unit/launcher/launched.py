"""A launcher as a process, over the scripted program in vLLM's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scripted_vllm
from common.net import free_port
from launcher.model import manifest

ROOT = Path(__file__).resolve().parents[3]
# As `nvidia-smi -L` prints it: the machine check asks it for GPUs.
ONE_GPU = "GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)"


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
        programs = folder / "bin"
        programs.mkdir()
        smi = programs / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\necho '{ONE_GPU}'\n")
        smi.chmod(0o755)
        self.temporary = folder / "tmp"
        self.environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TMPDIR": str(self.temporary),
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

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.status_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def wait_for(self, phase: str) -> dict[str, Any]:
        assert until(lambda: self.status().get("phase") == phase), self.errors.read_text()
        return self.status()

    def idle(self) -> None:
        """From now on vLLM says that it runs nothing."""
        Path(f"{self.pids_file}.idle").touch()

    def ended(self, seconds: float = 30) -> int:
        return self.process.wait(seconds)

    def last_error(self) -> str:
        return self.errors.read_text().splitlines()[-1]

    def leaves_nothing(self) -> bool:
        return until(lambda: not any(alive(pid) for pid in self.pids()), 5)


Start = Callable[..., Launcher]
