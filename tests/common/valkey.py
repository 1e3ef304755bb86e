"""A real Valkey for tests: `valkey-server`, or Debian's `redis-server`, which speaks the same."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from types import TracebackType

import pytest

from common.net import free_port
from common.servers import wait_until

OPTIONS = {"--bind": "127.0.0.1", "--save": "", "--appendonly": "no", "--daemonize": "no"}


class ValkeyProcess:
    """On a free loopback port, nothing on disk. Use as a context manager."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"valkey://127.0.0.1:{self.port}"
        self._binary = shutil.which("valkey-server") or shutil.which("redis-server")

    def __enter__(self) -> ValkeyProcess:
        if self._binary is None and os.environ.get("STACK_REQUIRE_DOCKER") != "1":
            pytest.skip("neither valkey-server nor redis-server is on this machine")
        assert self._binary is not None, "no valkey-server and no redis-server here"
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start (again), on the same port, with nothing of before."""
        assert self._binary is not None
        words = [word for option in OPTIONS.items() for word in option]
        command = [self._binary, "--port", str(self.port), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(self._answers, 10)

    def kill(self) -> None:
        """As a crash does."""
        self.process.kill()
        self.process.wait(10)

    def stall(self) -> None:
        """It keeps its connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ask(self, *words: str) -> bytes:
        """One command, and its answer as it was written."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as link:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            link.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return link.recv(65536)

    def _answers(self) -> bool:
        try:
            return self.ask("PING") == b"+PONG\r\n"
        except OSError:
            return False
