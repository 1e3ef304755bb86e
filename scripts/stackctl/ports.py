"""Local mode's ports: NGINX_PORT is the user's, the rest are free loopback ports kept in .run."""

import json
import socket
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from stackctl import envfile
from stackctl.doctor import facts
from stackctl.layout import Layout

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    nginx: int
    gateway: int
    engine: int
    engine_status: int

    @property
    def inner(self) -> tuple[int, int, int]:
        return (self.gateway, self.engine, self.engine_status)


def read(layout: Layout) -> Ports | None:
    """What the last `up` recorded, if it can be read."""
    try:
        return Ports(**json.loads(layout.ports.read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError):
        return None


def choose(layout: Layout, nginx: int, running: bool) -> Ports:
    """The recorded ports while they are ours or free (so that nothing restarts), else new ones."""
    old = read(layout)
    if old and (running or not any(facts.bind_error(LOOPBACK, p) for p in old.inner)):
        return Ports(nginx, *old.inner)
    return Ports(nginx, *_free(3))


def record(layout: Layout, ports: Ports) -> None:
    envfile.write_atomically(layout.ports, json.dumps(asdict(ports)) + "\n", 0o644)


def _free(count: int) -> list[int]:
    """Free ports, all different: each stays bound until the last is found."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind((LOOPBACK, 0))
        return [sock.getsockname()[1] for sock in sockets]
