"""The facts that the machine check judges, read from the system once; nothing is changed."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from launcher.host import cards, versions
from launcher.host.machine import Facts, Gpus
from launcher.options.settings import Settings


def gather(settings: Settings, environ: Mapping[str, str], model: Path) -> Facts:
    """The facts that `judge` needs; reads the system, changes nothing."""
    on_gpu = settings.device == "cuda"
    return Facts(
        gpus=list_gpus() if on_gpu else Gpus(),
        cards=cards.query() if on_gpu else (),
        needs=versions.installed() if on_gpu else None,
        visible_devices=environ.get("CUDA_VISIBLE_DEVICES", "").strip() or None,
        launch_blocking=environ.get("CUDA_LAUNCH_BLOCKING"),
        disks={folder: _free_disk(folder) for folder in _cache_folders(environ)},
        shm_free=_free_disk(Path("/dev/shm")),  # noqa: S108 - its size is the question
        memory_free=None if on_gpu else free_memory(),
        weights=sum(path.stat().st_size for path in model.glob("*.safetensors")),
    )


def list_gpus() -> Gpus:
    """What `nvidia-smi -L` says, with its reason where it says nothing."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        return Gpus(error="there is no nvidia-smi here")
    except subprocess.TimeoutExpired:
        return Gpus(error="nvidia-smi did not answer within 60 s")
    if done.returncode != 0:
        words = " ".join((done.stdout + done.stderr).split())
        return Gpus(error=words[:200] or f"nvidia-smi ended with {done.returncode}")
    return parse_gpus(done.stdout)


def parse_gpus(listing: str) -> Gpus:
    """Counts the lines of `nvidia-smi -L`."""
    whole = len(re.findall(r"^GPU \d+:", listing, re.MULTILINE))
    slices = len(re.findall(r"^ +MIG ", listing, re.MULTILINE))
    return Gpus(whole, slices, None if whole else "nvidia-smi lists no GPU")


def _cache_folders(environ: Mapping[str, str]) -> list[Path]:
    named = (environ.get(name, "").strip() for name in ("ENGINE_CACHE_DIR", "TMPDIR"))
    return [Path(folder) for folder in named if folder]


def _free_disk(folder: Path) -> int | None:
    """Free bytes where `folder` is or will be made; None where it can't be written."""
    there = next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))
    if not os.access(there, os.W_OK):
        return None
    return shutil.disk_usage(there).free


def free_memory(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Bytes this process may still take: the host's available memory, or what the container's
    limit leaves (cgroup v2; reclaimable page cache counts as free)."""
    try:
        match = re.search(r"^MemAvailable: +(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    host = int(match[1]) * 1024 if match else None
    limit = _number(cgroup / "memory.max")
    used = _number(cgroup / "memory.current")
    if host is None or limit is None or used is None:
        return host
    return min(host, limit - used + (_reclaimable(cgroup / "memory.stat") or 0))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _reclaimable(path: Path) -> int | None:
    try:
        match = re.search(r"^inactive_file (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None
