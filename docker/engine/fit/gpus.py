"""Which GPU the question is about: of this host, or named (h200, l40s, 24GB, 81559, h100x8)."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from fit.plans import Table

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
MIB = 2**20
SMALLEST_MIB = 1024  # a lower number means gigabytes


class GpuError(Exception):
    """A GPU that can't be told: found, wanted, fix."""


@dataclass(frozen=True)
class Gpu:
    """`total`: bytes of one, as nvidia-smi's memory.total has it. `count`: how many there are, None
    where only a kind was named."""

    name: str
    total: int
    count: int | None


def named(text: str, table: Table) -> Gpu:
    """From `--gpu`. Raises GpuError."""
    match = re.fullmatch(r"\s*(.+?)\s*(?:[x*]\s*([1-9]\d{0,2}))?\s*", text, re.IGNORECASE)
    base, count = (match[1], int(match[2]) if match[2] else None) if match else (text, None)
    size = re.fullmatch(r"(\d{1,7})\s*(mib|mb|gib|gb|g)?", base, re.IGNORECASE)
    if size:
        return Gpu(base, _bytes(int(size[1]), (size[2] or "").lower()), count)
    for plan in table.plans:
        if _plain(base) == plan.slug.replace("-", ""):
            return Gpu(plan.gpu, plan.gpu_mib * MIB, plan.gpus)
    found = [plan for plan in table.plans if _plain(base) == _plain(plan.gpu)]
    if not found:
        kinds = ", ".join(dict.fromkeys(plan.gpu for plan in table.plans))
        raise GpuError(
            f"--gpu: found {text!r}; wanted one of {kinds}, a plan's name, or memory such as 24GB;"
            " fix: take the memory that nvidia-smi shows"
        )
    return Gpu(found[0].gpu, found[0].gpu_mib * MIB, count)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("nvidia", ""))


def _bytes(number: int, unit: str) -> int:
    if unit in ("mib", "mb") or (not unit and number >= SMALLEST_MIB):
        return number * MIB
    return number * 1024 * MIB


def here() -> list[Gpu]:
    """This host's GPUs by nvidia-smi: one entry, of the smallest; empty where there are none."""
    cards = seen()
    return [min(cards, key=lambda card: card.total)] if cards else []


def seen() -> list[Gpu]:
    """All of them, each with the number of all."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return parse(done.stdout) if done.returncode == 0 else []


def parse(listing: str) -> list[Gpu]:
    """From the query's lines; cards whose memory is not told ([N/A]) are left out."""
    rows = [line.rpartition(",") for line in listing.splitlines()]
    cards = [(name.strip(), int(size)) for name, _, size in rows if size.strip().isdecimal()]
    return [Gpu(name, size * MIB, len(cards)) for name, size in cards]
