"""Images, locks and versions are pinned and agree with each other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TRACKED = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split("\0")


def test_no_image_floats() -> None:
    for path in [*ROOT.glob("docker/*/Dockerfile"), ROOT / "docker-compose.yml"]:
        text = path.read_text()
        assert ":latest" not in text, path
        for image in re.findall(r"^FROM\s+(\S+)", text, re.MULTILINE):
            pinned = ":" in image or image.startswith("$") or f"AS {image}" in text
            assert pinned, f"{path}: {image} has no tag"


def test_every_locked_package_has_a_hash() -> None:
    for path in ROOT.glob("**/requirements*.txt"):
        if ".run" in path.parts or ".venv" in path.parts:
            continue
        entries = re.split(r"\n(?=\S)", path.read_text())
        for entry in entries:
            if "==" in entry and not entry.startswith("#"):
                assert "--hash=sha256:" in entry, f"{path}: {entry.splitlines()[0]}"


def test_the_gateway_lock_is_part_of_the_developers_lock() -> None:
    def pins(path: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / path).read_text(), re.MULTILINE))

    developers = pins("scripts/requirements.txt")
    for name, version in pins("docker/gateway/requirements.txt").items():
        assert developers.get(name) == version, name


@pytest.mark.skipif(TRACKED == [""], reason="not a git checkout: nothing to list")
def test_no_generated_or_secret_file_is_tracked() -> None:
    allowed = {"secrets/README.md", "secrets/.gitignore"}
    for name in TRACKED:
        assert not name.startswith((".run/", ".venv/")), name
        assert not name.startswith("secrets/") or name in allowed, name
        assert name != ".env", name


@pytest.mark.skipif(TRACKED == [""], reason="not a git checkout: nothing to list")
def test_text_files_keep_lf() -> None:
    for name in filter(None, TRACKED):
        path = ROOT / name
        if path.is_file() and path.suffix != ".log":  # recorded output keeps its CRs
            data = path.read_bytes()
            assert b"\0" in data or b"\r\n" not in data, name
