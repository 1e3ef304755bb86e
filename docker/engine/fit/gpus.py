"""Which GPU the question is about: of this host, or named (h200, l40s, 24GB, 81559, h100x8)."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from fit.plans import Table

FIELDS = "name,memory.total,mig.mode.current"
QUERY = ("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
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
    """From the query's lines. Cards whose memory is not told ([N/A]) are left out, and those that
    are cut into slices (MIG): an engine gets one slice, whose size is not told here."""
    rows = [[part.strip() for part in line.rsplit(",", 2)] for line in listing.splitlines()]
    cards = [
        (row[0], int(row[1]))
        for row in rows
        if len(row) > 1 and row[1].isdecimal() and row[2:] != ["Enabled"]
    ]
    return [Gpu(name, size * MIB, len(cards)) for name, size in cards]
