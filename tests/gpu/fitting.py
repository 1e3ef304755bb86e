"""What fit answers for a shape, on this host and with a case's settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu import engine, shapes
from gpu.engine import Place


class FitFailed(Exception):
    """fit gave no answer; the text is what it said."""


def ask(place: Place, tokenizer: Path, shape: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Its JSON. Raises FitFailed."""
    folder = place.work / "configs" / shape
    folder.mkdir(parents=True, exist_ok=True)
    shapes.write_config(shape, tokenizer, folder)
    done = subprocess.run(
        [sys.executable, "-m", "fit", str(folder), "--json"],
        env=engine.environment(place, "cuda", env),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    try:
        return dict(json.loads(done.stdout))
    except ValueError as error:
        raise FitFailed(f"fit: {' '.join(done.stderr.split())[-300:]}") from error
