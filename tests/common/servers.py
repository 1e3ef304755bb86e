"""Runs the real gateway for tests: as the process an operator starts, on a free port."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from common.rawhttp import Client, Reply, once

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-test-0123456789abcdef"
AUTH = {"authorization": f"Bearer {KEY}"}
CHAT = "/v1/chat/completions"
START_S = 60  # patience with a busy machine


def write_keys(folder: Path, text: str | None = None) -> Path:
    """A key file with the key KEY named `default`, or with the given text."""
    path = folder / "api_keys.toml"
    path.write_text(text if text is not None else f'[[key]]\nname = "default"\nkey = "{KEY}"\n')
    return path


def base_environment() -> dict[str, str]:
    """This environment without any GATEWAY_* name, and with the repository importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


class GatewayProcess:
    """`python -m gateway` on a free loopback port. Use as a context manager.

    `settings`: GATEWAY_* values without the prefix, in lower case.
    """

    # Development mode: slow callbacks, forgotten sockets and coroutines show in the output.
    flags: ClassVar[Sequence[str]] = ("-X", "dev", "-W", "error::ResourceWarning")

    def __init__(self, keys: Path, upstreams: str, **settings: object) -> None:
        given = {"host": "127.0.0.1", "port": 0, "upstreams": upstreams, "api_keys_file": keys}
        given["usage_db"] = keys.with_name("usage.sqlite3")
        values = {f"GATEWAY_{n.upper()}": str(v) for n, v in {**given, **settings}.items()}
        self.environment = {**base_environment(), **values}
        self.port = 0
        self.lines: list[str] = []
        self._seen: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> GatewayProcess:
        self.process = subprocess.Popen(
            [sys.executable, *self.flags, "-m", "gateway"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = self._wait_for_port()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def events(self, event: str = "request") -> list[dict[str, Any]]:
        """Parsed log lines of one kind so far."""
        parsed = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in parsed if line["event"] == event]

    def wait_event(self, number: int = 1, timeout_s: float = 5.0) -> dict[str, Any]:
        """The `number`th request line, once it is written."""
        wait_until(lambda: len(self.events()) >= number, timeout_s)
        return self.events()[number - 1]

    def mark(self) -> None:
        """Empty the log, once every line of earlier requests has arrived (lines keep order)."""
        name = f"mark-{time.monotonic_ns()}"
        once(self.port, "GET", "/mark", {"x-request-id": name})
        wait_until(lambda: name in self.output)
        self.lines.clear()

    def wait_ready(self, timeout_s: float = 5.0) -> None:
        wait_until(lambda: once(self.port, "GET", "/readyz").status == 200, timeout_s)

    def client(self, timeout_s: float = 10.0) -> Client:
        return Client(self.port, timeout_s=timeout_s)

    def chat(self, body: object = b'{"stream":true}', **headers: str) -> Reply:
        """One chat request with the key, on a connection of its own."""
        return once(self.port, "POST", CHAT, {**AUTH, **headers}, body)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = once(self.port, "GET", "/status").json()
        return found

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, timeout_s: float = 10.0) -> int:
        return self.process.wait(timeout_s)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._seen.put(line)
        self._seen.put("")

    def _wait_for_port(self) -> int:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            line = self._seen.get(timeout=START_S)
            if "listening on http://" in line:
                return int(json.loads(line)["message"].rsplit(":", 1)[1])
            assert line, f"the gateway ended: {self.output}"
        raise AssertionError(f"no port within {START_S} s: {self.output}")


class PlainGateway(GatewayProcess):
    """As an operator runs it: for loads that development mode would slow down."""

    flags: ClassVar[Sequence[str]] = ()

    @property
    def open_files(self) -> int:
        """Descriptors of the process, sockets among them."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    @property
    def rss(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096


def run_gateway(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the gateway with these variables until it ends by itself (bad input); at most 20 s."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env={**base_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def wait_until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Poll until true; AssertionError after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not so within {timeout_s} s"
        time.sleep(0.01)
