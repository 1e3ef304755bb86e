"""The digests of compose/pinned.yml reach every image that is built or pulled."""

from __future__ import annotations

from pathlib import Path

import pytest
from common.compose import ROOT, Render
from stackctl import config, pins
from stackctl.layout import Layout

DIGEST = "sha256:" + "d" * 64
WORKERS = f"docker-compose.yml:{pins.WORKERS_OVERLAY}"
CPU = f"docker-compose.yml:{pins.CPU_OVERLAY}"


def overlay(project: Path, files: str) -> None:
    """What `pin` writes for these files, beside the project's own overlays."""
    layout, names = Layout(ROOT), files.split(":")
    settings = config.Config(None, {}, {})
    found = pins.Pins(dict.fromkeys(pins.needed(layout, settings, names), DIGEST), "2026-12-01")
    text = pins.text(found, pins.services(layout, settings, found, names))
    (project / pins.OVERLAY).write_text(text)


@pytest.mark.parametrize("files", ["docker-compose.yml", CPU, WORKERS])
def test_every_image_is_built_from_its_digest(render: Render, tmp_path: Path, files: str) -> None:
    overlay(tmp_path / "project", files)
    rendered = render(files=f"{files}:{pins.OVERLAY}")
    assert rendered.code == 0, rendered.stderr
    plain = render(files=files)
    assert rendered.model["services"].keys() == plain.model["services"].keys()
    name = "vllm/vllm-openai-cpu" if files == CPU else "vllm/vllm-openai"
    wanted = {
        ("model", "VLLM_IMAGE"): f"{name}:v0.33.0@{DIGEST}",
        ("gateway", "PYTHON_IMAGE"): f"python:3.11-slim-bookworm@{DIGEST}",
        ("nginx", "NGINX_IMAGE"): f"nginx:1.30.4@{DIGEST}",
    }
    for (service, argument), reference in wanted.items():
        assert rendered.service(service)["build"]["args"][argument] == reference
    if files == WORKERS:
        assert rendered.service("valkey")["image"] == f"valkey/valkey:8.1-alpine@{DIGEST}"


def test_an_image_in_env_does_not_go_round_the_pin(render: Render, tmp_path: Path) -> None:
    """`up` and doctor refuse the edit; plain docker compose keeps to what is pinned."""
    overlay(tmp_path / "project", "docker-compose.yml")
    rendered = render(b"VLLM_IMAGE=other/vllm:1\n", f"docker-compose.yml:{pins.OVERLAY}")
    args = rendered.service("model")["build"]["args"]
    assert args["VLLM_IMAGE"] == f"vllm/vllm-openai:v0.33.0@{DIGEST}"
