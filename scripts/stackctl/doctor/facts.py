"""What the host has: small readers at the edge, with pure parsers beside them."""

import csv
import ctypes
import os
import platform
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from stackctl import process
from stackctl.mode import Engine, Gpus

PCI_DEVICES = Path("/sys/bus/pci/devices")
GPU_QUERY = ("nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader")


@dataclass(frozen=True)
class Host:
    """Sizes in bytes. `python` is the interpreter that runs us."""

    python: tuple[int, int]
    has_venv: bool
    system: str
    machine: str
    memory: int
    engine: Engine
    compose: str
    gpus: Gpus


def read_host() -> Host:
    engine = read_engine()
    return Host(
        python=sys.version_info[:2],
        has_venv=_has_venv(),
        system=platform.system(),
        machine=platform.machine(),
        memory=read_memory(),
        engine=engine,
        compose=read_compose() if engine.state == "ok" else "",
        gpus=read_gpus(),
    )


def _has_venv() -> bool:
    # Debian splits ensurepip out of python3; without it `python -m venv` stops half-way.
    return process.run([sys.executable, "-c", "import ensurepip, venv"]).rc == 0


def read_engine() -> Engine:
    done = process.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=20)
    return parse_engine(done)


def parse_engine(done: process.Result) -> Engine:
    if done.rc == process.NOT_FOUND:
        return Engine("absent", "no docker command")
    version = done.out.strip()
    if done.rc == 0 and version and version != "<no value>":
        return Engine("ok", version=version)
    refused = "permission denied" in done.err.lower()
    return Engine("refused" if refused else "absent", done.last_line)


def read_compose() -> str:
    """Compose's version like `2.40.3`, empty when the plugin is missing."""
    return parse_compose(process.run(["docker", "compose", "version", "--short"], timeout=20))


def parse_compose(done: process.Result) -> str:
    found = re.search(r"\d+\.\d+(\.\d+)?", done.out)
    return found.group() if done.rc == 0 and found else ""


def read_gpus(bus: Path = PCI_DEVICES) -> Gpus:
    done = process.run(GPU_QUERY, timeout=60)
    if done.rc == process.NOT_FOUND:
        return Gpus(driverless=count_nvidia(bus))
    found = parse_gpus(done)
    return found if found.names or found.error else Gpus(unseen=count_nvidia(bus))


def count_nvidia(bus: Path) -> int:
    """NVIDIA's display controllers (PCI class 0x03, vendor 0x10de) under /sys/bus/pci/devices."""
    return sum(_is_nvidia(device) for device in bus.glob("*"))


def _is_nvidia(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text(encoding="ascii").strip()
        kind = (device / "class").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    return vendor == "0x10de" and kind.startswith("0x03")


def parse_gpus(done: process.Result) -> Gpus:
    """From `nvidia-smi --query-gpu=index,name --format=csv,noheader`."""
    if "no devices were found" in (done.out + done.err).lower():
        return Gpus()
    if done.rc != 0:  # NVML's reason may stand in the first of several lines
        said = " ".join(f"{done.out} {done.err}".split())
        return Gpus(error=said[:300] or done.last_line)
    rows = [row for row in csv.reader(done.out.splitlines(), skipinitialspace=True) if row]
    return Gpus(tuple(row[1] for row in rows if len(row) > 1 and row[0].isdigit()))


def read_memory() -> int:
    """Bytes this process may use: the host's memory or a smaller cgroup limit."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return host
    return min(host, int(limit)) if limit.isdigit() else host


def read_free(path: Path) -> int:
    """Free bytes at `path` or at its nearest folder that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def docker_root() -> Path | None:
    """Where the engine keeps images, when that is a folder of this host."""
    done = process.run(["docker", "info", "--format", "{{.DockerRootDir}}"], timeout=20)
    path = Path(done.out.strip() or "/nonexistent")
    return path if done.rc == 0 and path.is_dir() else None


def bind_error(address: str, port: int) -> str:
    """Why nothing can listen there, or an empty string."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return os.strerror(error.errno or 0)
    return ""


@dataclass(frozen=True)
class Listener:
    """The process behind a listening port."""

    pid: int
    name: str
    cwd: str


def find_listener(port: int) -> Listener | None:
    """Who listens on TCP `port`, as far as /proc lets this user see it."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            inodes |= parse_listening(Path(table).read_text(encoding="ascii"), port)
        except OSError:
            continue
    links = {f"socket:[{inode}]" for inode in inodes}
    holders = (_holder(pid, links) for pid in pids()) if links else iter(())
    return next((holder for holder in holders if holder), None)


def parse_listening(table: str, port: int) -> set[str]:
    """Inodes of listening sockets (state 0A) on `port` in a /proc/net/tcp table."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return {r[9] for r in rows if r[3] == "0A" and int(r[1].rpartition(":")[2], 16) == port}


def pids() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _holder(pid: int, links: set[str]) -> Listener | None:
    home = Path(f"/proc/{pid}")
    try:
        if not any(str(fd.readlink()) in links for fd in (home / "fd").iterdir()):
            return None
        name = (home / "comm").read_text(encoding="utf-8").strip()
        return Listener(pid, name, str((home / "cwd").readlink()))
    except OSError:
        return None


def has_library(name: str) -> bool:
    """Whether this host's loader finds a shared library, by its file name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
