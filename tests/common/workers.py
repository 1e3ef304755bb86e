"""The worker processes of a gateway, and which of them has a connection."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

from common.rawhttp import Client, Reply, build
from common.servers import AUTH, CHAT, GatewayProcess

STREAM = b'{"stream":true}'


def pids(gateway: GatewayProcess) -> list[int]:
    """The running workers of the gateway's manager."""
    manager = gateway.process.pid
    children = Path(f"/proc/{manager}/task/{manager}/children").read_text().split()
    return [int(pid) for pid in children if alive(int(pid))]


def alive(pid: int) -> bool:
    """False when it has ended, also while nobody has asked how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def serves(pid: int, client_port: int) -> bool:
    """Has that worker accepted the connection from that loopback port?"""
    ours = f":{client_port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(ours)}
    return bool(inodes & set(_files(pid)))


def _files(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(link.readlink()))
    return found


class Streams:
    """Streams of a gateway that have begun; closed at the end."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self.of: dict[int, list[tuple[Client, Reply]]] = {pid: [] for pid in pids(gateway)}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return sum(map(len, self.of.values()))

    def begin(self) -> tuple[Client, Reply]:
        client = self._stack.enter_context(self.gateway.client())
        client.send(build("POST", CHAT, AUTH, STREAM))
        reply = client.read_head()
        assert reply.status == 200
        return client, reply

    def more(self, count: int) -> Counter[int]:
        """Ask for so many more: how many came to which status."""
        statuses: Counter[int] = Counter()
        for _ in range(count):
            client = self._stack.enter_context(self.gateway.client())
            client.send(build("POST", CHAT, AUTH, STREAM))
            statuses[client.read_head().status] += 1
        return statuses

    def on_each(self) -> None:
        """Begin streams until every worker has one."""
        for _ in range(30):
            if all(self.of.values()):
                return
            client, reply = self.begin()
            port = client.socket.getsockname()[1]
            (owner,) = [pid for pid in self.of if serves(pid, port)]
            self.of[owner].append((client, reply))
        raise AssertionError("one worker took all connections")

    def end_well(self) -> bool:
        """True when all of them come to their end."""
        return all(
            client.read_body(reply).whole for each in self.of.values() for client, reply in each
        )
