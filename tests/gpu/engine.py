"""The project's own launcher, and vLLM without it, as processes that are always ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.host import caches

from gpu import leftover

ROOT = Path(__file__).resolve().parents[2]
STOP_S = 30.0
START_S = 420.0
Status = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """One run: its folder, the compile caches that warm starts share, when it has to be over
    (time.monotonic), the mark of its processes, and where lines go."""

    work: Path
    caches: Path
    end: float
    mark: str
    say: Callable[[str], None]

    def limit(self) -> float:
        """Until when one start is waited for, so that it can still be ended in time."""
        return min(time.monotonic() + START_S, self.end - STOP_S)


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
        leftover.MARK: place.mark,
        **extra,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(port: int, path: str) -> str:
    """A page's text. Raises OSError (also for an error status) and HTTPException."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@dataclass
class Launched:
    """A launcher that runs."""

    process: subprocess.Popen[bytes]
    port: int
    status_port: int
    place: Place

    def status(self) -> Status:
        """Empty where it does not answer."""
        try:
            return dict(json.loads(page(self.status_port, "/status")))
        except (OSError, http.client.HTTPException, ValueError):
            return {}

    def last_line(self) -> str:
        lines = (self.place.work / "launcher.err").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def until(self, done: Callable[[Status], bool]) -> Status:
        """The first status that is done or ready; the last one where the launcher or the time
        ended."""
        end, told = self.place.limit(), Status()
        while time.monotonic() < end and self.process.poll() is None:
            before, told = told.get("phase"), self.status() or told
            if told.get("phase") != before:
                self.place.say(f"  {told.get('phase')}: {told.get('message')}")
            if told.get("phase") == "ready" or done(told):
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
    with _output(place, "launcher.err") as err, _output(place, "launcher.out") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher"], env=env, stdout=out, stderr=err, process_group=0
        )
    try:
        yield Launched(process, port, status_port, place)
    finally:
        ended(process)


@contextlib.contextmanager
def _output(place: Place, name: str) -> Iterator[int]:
    handle = os.open(place.work / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code: told to stop, then killed with its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def direct(place: Place, model: Path, words: list[str]) -> tuple[int, str, bool]:
    """vLLM itself, with the caches of an earlier start, with the plugin and graphs required: exit
    code, its output, and whether it ever answered."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model),
               "--host", "127.0.0.1", "--port", str(port), *words]  # fmt: skip
    env = environment(place, "cuda", _required(place))
    with _output(place, "launcher.out") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, process_group=0)
    answered, end = False, place.limit()
    try:
        while process.poll() is None and time.monotonic() < end and not answered:
            answered = _answers(port)
            time.sleep(0.5)
    finally:
        code = ended(process)
    return code, (place.work / "launcher.out").read_text(errors="replace"), answered


def _required(place: Place) -> dict[str, str]:
    """What the launcher would set."""
    proof = Path(tempfile.mkdtemp(prefix="proof-", dir=place.work))  # not what another one left
    return {
        "ENGINE_PROOF_DIR": str(proof),
        "ENGINE_REQUIRE_GRAPHS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        **_warm(place.caches),
    }


def _warm(root: Path) -> dict[str, str]:
    """Where kernels were compiled before: without them a refusal takes two minutes longer."""
    found = [each for each in root.glob("*/key.json") if caches.KEY.fullmatch(each.parent.name)]
    newest = max(found, key=lambda each: each.stat().st_mtime, default=None)
    return caches.environment(newest.parent) if newest else {}


def _answers(port: int) -> bool:
    try:
        page(port, "/health")
    except (OSError, http.client.HTTPException):
        return False
    return True
