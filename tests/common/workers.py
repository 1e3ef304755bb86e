"""The worker processes of a gateway, and which of them has a connection."""

from __future__ import annotations

import contextlib
from pathlib import Path

from common.servers import GatewayProcess


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
