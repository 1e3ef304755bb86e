"""The image's files agree with the lock."""

from __future__ import annotations

import re
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[3] / "docker/engine"


def pins(name: str) -> dict[str, set[str]]:
    """package==version → hashes."""
    found: dict[str, set[str]] = {}
    for line in (ENGINE / name).read_text().splitlines():
        if start := re.match(r"([\w.-]+==\S+)", line):
            current = found.setdefault(start[1], set())
        elif pin := re.search(r"--hash=(sha256:[0-9a-f]{64})", line):
            current.add(pin[1])
    return found


def test_the_converters_packages_are_the_locked_ones() -> None:
    lock = pins("requirements-cpu.txt")
    for package, hashes in pins("embedded.txt").items():
        assert hashes
        assert lock[package] == hashes


def test_the_lock_holds_nothing_that_never_installs() -> None:
    text = (ENGINE / "requirements-cpu.txt").read_text()
    assert not re.search(r"^[a-z].*(never|win32|emscripten|darwin)", text, re.MULTILINE)
    assert not re.search(r"^torch==", text, re.MULTILINE)
    assert len(pins("requirements-cpu.txt")) > 100


def test_the_build_sees_an_allow_list_only() -> None:
    lines = (ENGINE / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    copied = re.findall(
        r"^COPY (?!--from)(.*) \S+$", (ENGINE / "Dockerfile").read_text(), re.MULTILINE
    )
    for source in " ".join(copied).split():
        assert any(rule.startswith(f"!{source}") for rule in rules), source
