"""The Droplet plans with NVIDIA GPUs, cheapest first, from one dated file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("plans.json")


@dataclass(frozen=True)
class Plan:
    """`gpu_mib`: of one GPU, as nvidia-smi shows it."""

    slug: str
    gpu: str
    gpus: int
    gpu_mib: int
    ram_gib: int
    usd_per_hour: float


@dataclass(frozen=True)
class Table:
    """`date`: of the prices."""

    date: str
    plans: tuple[Plan, ...]


def load(path: Path = FILE) -> Table:
    content = json.loads(path.read_text(encoding="utf-8"))
    plans = sorted((Plan(**row) for row in content["plans"]), key=lambda plan: plan.usd_per_hour)
    return Table(content["date"], tuple(plans))
