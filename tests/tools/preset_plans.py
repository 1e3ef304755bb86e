"""Writes what `fit` says into the presets' heads and into the table of docs/models.md.

    .venv/bin/python tests/tools/preset_plans.py

Run it after a change of a preset, of the plans or of the arithmetic; tests hold both to it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "docker/engine", "scripts")]

from common import presets  # noqa: E402 - found by the path above
from fit import plans  # noqa: E402

PAGE = ROOT / "docs/models.md"


def main() -> None:
    table = plans.load()
    for preset in presets.every():
        preset.path.write_text(presets.with_fits(preset, table), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    start, end = text.index("| preset |"), text.index("\n\n", text.index("| preset |"))
    PAGE.write_text(text[:start] + presets.docs_table().rstrip("\n") + text[end:], encoding="utf-8")


main()
