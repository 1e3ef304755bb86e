"""What `docker compose config` rendered, and the file sets that are shipped. Imports no engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GPU = "docker-compose.yml"
CPU = "docker-compose.yml:compose/cpu.yml"
FILE_SETS = (GPU, CPU)


@dataclass(frozen=True)
class Rendered:
    """What `docker compose config` said: its exit code, its parsed JSON (or {}), its stderr."""

    code: int
    model: dict[str, Any]
    stderr: str
    text: str

    def service(self, name: str) -> dict[str, Any]:
        return dict(self.model["services"][name])

    def environment(self, name: str) -> dict[str, str]:
        """What the container sees: unset names left out, Compose's own `$$` undone."""
        found = self.service(name).get("environment", {})
        return {key: value.replace("$$", "$") for key, value in found.items() if value is not None}

    def devices(self, name: str) -> list[dict[str, Any]]:
        resources = self.service(name).get("deploy", {}).get("resources", {})
        return list(resources.get("reservations", {}).get("devices", []))


Render = Callable[..., Rendered]
Config = Callable[..., subprocess.CompletedProcess[str]]
