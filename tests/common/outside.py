"""An address outside of every container network, that is ours all the same: a host in a network
namespace of its own, reached over a veth pair. Needs Linux, root and iproute2; nothing leaves the
machine.

    with Outside() as outside:
        ...  # containers with a way out reach outside.address:outside.port
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from types import TracebackType

LISTENER = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
PREFIX = "stacktest-"  # tests/standins/sweep.sh removes what a killed run left
NEAR, FAR = "203.0.113.1", "203.0.113.2"  # TEST-NET-3: no real host has these


def missing() -> str | None:
    """Why it cannot be made here, None when it can."""
    if os.geteuid() != 0:
        return "a network namespace of our own needs root"
    return None if shutil.which("ip") else "no `ip` command (iproute2)"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass
class Outside:
    """The host; it accepts TCP connections, and closes them, while the block runs."""

    address: str = FAR
    port: int = 8099
    _name: str = field(default_factory=lambda: PREFIX + secrets.token_hex(3))
    _server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Outside:
        tail = self._name.removeprefix(PREFIX)  # an interface's name has 15 characters at most
        near, far = f"st{tail}a", f"st{tail}b"
        _ip("netns", "add", self._name)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self._name)
        _ip("address", "add", f"{NEAR}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", self._name, "address", "add", f"{FAR}/30", "dev", far)
        _ip("-n", self._name, "link", "set", far, "up")
        _ip("-n", self._name, "route", "add", "default", "via", NEAR)
        self._server = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                self._name,
                sys.executable,
                "-c",
                LISTENER,
                FAR,
                str(self.port),
            ],
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout
        assert self._server.stdout.readline() == b"listening\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._server:
            self._server.terminate()
            self._server.communicate(timeout=10)
        _ip("netns", "delete", self._name)
