"""`scripts/stack pin` against a real registry, and a real build from what it wrote."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from common.docker_project import Project
from common.registry import PROGRAM, Registry

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
IMAGES = ("python:3.11-slim-bookworm", "nginx:1.30.4", "valkey/valkey:8.1-alpine")
ENGINE = "engine/vllm:v1"
# Three small images suffice, but nginx is built from its own.
TINY = "vllm-compose-standin/tiny:1"
FRONT = "nginx:1.30.4"


@pytest.fixture(scope="module")
def registry(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    try:
        with Registry.start(tmp_path_factory.mktemp("registry")) as running:
            yield running
    except FileNotFoundError:
        missing = f"no {PROGRAM} on this machine (Debian's package of that name)"
        if os.environ.get("STACK_REQUIRE_DOCKER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)


@pytest.fixture(scope="module")
def digests(registry: Registry) -> dict[str, str]:
    """Pushed to the registry: reference without its host → digest. The engine is a list for two
    platforms, as the official images are."""
    _import_tiny()
    found = {name: registry.push(FRONT if name == FRONT else TINY, name) for name in IMAGES}
    one = registry.push(TINY, ENGINE)
    found[ENGINE] = registry.put_index("engine/vllm", "v1", one)
    assert found[ENGINE] != one
    return found


def _import_tiny() -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    command = ["docker", "import", "-", TINY]
    subprocess.run(command, input=data.getvalue(), check=True, capture_output=True)


@pytest.fixture(scope="module")
def project(
    registry: Registry, digests: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """A checkout whose images come from that registry."""
    root = tmp_path_factory.mktemp("pinned")
    settings = {"STACK_MODE": "cpu", "VLLM_IMAGE": f"{registry.host}/{ENGINE}"}
    with Project.create(root, settings) as made:
        files = [*root.glob("docker/*/Dockerfile"), root / "compose" / "workers.yml"]
        for path in files:
            text = path.read_text()
            for image in IMAGES:
                text = text.replace(image, f"{registry.host}/{image}")
            path.write_text(text)
        made.stack("init")
        made.stack("pin")
        yield made


def rendered(project: Project) -> dict[str, dict[str, object]]:
    return dict(json.loads(project.compose("config", "--format", "json").stdout)["services"])


def arguments(project: Project, service: str) -> dict[str, str]:
    build = rendered(project)[service]["build"]
    assert isinstance(build, dict)
    return dict(build["args"])


def test_compose_sees_the_digests_of_the_registry(
    project: Project, registry: Registry, digests: dict[str, str]
) -> None:
    def pinned(name: str) -> str:
        return f"{registry.host}/{name}@{digests[name]}"

    assert arguments(project, "model")["VLLM_IMAGE"] == pinned(ENGINE)
    assert arguments(project, "gateway")["PYTHON_IMAGE"] == pinned(IMAGES[0])
    assert arguments(project, "nginx")["NGINX_IMAGE"] == pinned(IMAGES[1])
    assert "valkey" not in rendered(project)


def test_docker_builds_from_the_digest(project: Project, registry: Registry) -> None:
    """The tag moves on; what was pinned is still what is built."""
    registry.push(TINY, FRONT)  # no nginx in it: a build from the tag would fail
    project.build("nginx")


def test_a_moved_tag_takes_another_pin(
    project: Project, registry: Registry, digests: dict[str, str]
) -> None:
    before = arguments(project, "nginx")
    moved = registry.push(TINY, FRONT)
    assert moved != digests[FRONT]
    assert arguments(project, "nginx") == before
    project.stack("pin")
    assert arguments(project, "nginx")["NGINX_IMAGE"].endswith(moved)


def test_a_tag_that_is_not_there(project: Project, registry: Registry) -> None:
    overlay = project.root / "compose" / "pinned.yml"
    before = overlay.read_text()
    env = {**project.environment, "VLLM_IMAGE": f"{registry.host}/engine/vllm:v9"}
    other = Project(project.root, project.name, project.port, env)
    done = other.stack("pin", check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"found no {registry.host}/engine/vllm:v9 at {registry.host}" in done.stderr
    assert overlay.read_text() == before


def test_unpinned_the_tags_count_again(project: Project, registry: Registry) -> None:
    project.stack("pin", "--unpin")
    assert arguments(project, "model")["VLLM_IMAGE"] == f"{registry.host}/{ENGINE}"
    assert not Path(project.root / "compose" / "pinned.yml").exists()
