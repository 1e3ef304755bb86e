"""Fixtures for tests with a real Docker engine. Without one they are skipped, unless required."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from common.compose import CPU
from common.docker_project import Project

SLOW = f"{CPU}:tests/docker/slow.yml"


def _engine_problem() -> str | None:
    asks = (
        ["docker", "version", "--format", "{{.Server.Version}}"],
        ["docker", "compose", "version"],
    )
    for command in asks:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except FileNotFoundError:
            return "no docker command on this machine"
        if done.returncode != 0:
            return f"`{' '.join(command)}` failed: {done.stderr.strip()[-200:]}"
    return None


@pytest.fixture(scope="session")
def docker_engine() -> None:
    problem = _engine_problem()
    if problem is None:
        return
    if os.environ.get("STACK_REQUIRE_DOCKER") == "1":
        pytest.fail(f"STACK_REQUIRE_DOCKER=1, but {problem}")
    pytest.skip(problem)


@pytest.fixture(scope="module")
def slow(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """nginx and gateway as shipped, in front of the slow engine; built, not started."""
    root: Path = tmp_path_factory.mktemp("slow")
    with Project.create(root, {"COMPOSE_FILE": SLOW, "STACK_MODE": "cpu"}) as project:
        project.stack("init")
        project.build("nginx", "gateway")
        yield project


@pytest.fixture(scope="module")
def bare(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The shipped CPU stack after `init`, its images built, nothing started."""
    with Project.create(tmp_path_factory.mktemp("bare"), {"STACK_MODE": "cpu"}) as project:
        project.stack("init")
        project.build()
        yield project
