"""Renders the compose files with the real plugin: `docker compose config` needs no engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from common.compose import GPU, ROOT, Config, Render, Rendered


def _plugin() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return asked.returncode == 0


@pytest.fixture(scope="session")
def compose_plugin() -> None:
    if _plugin():
        return
    if os.environ.get("STACK_REQUIRE_DOCKER") == "1":
        pytest.fail("STACK_REQUIRE_DOCKER=1, but `docker compose` does not run here")
    pytest.skip("no Docker Compose plugin on this machine")


@pytest.fixture
def config(tmp_path: Path, compose_plugin: None) -> Config:
    """config(words, env=.env's bytes, files=COMPOSE_FILE, overriding=environment): the finished
    `docker compose config words...`."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "compose", project / "compose")
    shutil.copy(ROOT / "docker-compose.yml", project)

    def run(
        words: Sequence[str],
        env: bytes = b"",
        files: str = GPU,
        overriding: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        (project / ".env").write_bytes(env)
        # Nothing of the developer's own environment may decide a test.
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        return subprocess.run(
            ["docker", "compose", "config", *words],
            cwd=project,
            env=environment | {"COMPOSE_FILE": files} | dict(overriding or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    return run


@pytest.fixture
def render(config: Config) -> Render:
    """render(env=bytes of .env, files=COMPOSE_FILE, overriding=environment) -> Rendered."""

    def run(
        env: bytes = b"", files: str = GPU, overriding: Mapping[str, str] | None = None
    ) -> Rendered:
        done = config(["--format", "json"], env, files, overriding)
        model = json.loads(done.stdout) if done.returncode == 0 else {}
        return Rendered(done.returncode, model, done.stderr, done.stdout)

    return run
