"""The overlay with several workers: one more service, seen by the gateway alone."""

from __future__ import annotations

import re

import pytest
from common.compose import CPU, GPU, ROOT, Render

WITH_WORKERS = pytest.mark.parametrize(
    "files", [f"{base}:compose/workers.yml" for base in (GPU, CPU)], ids=["gpu", "cpu"]
)


@WITH_WORKERS
def test_valkey_is_added_and_nothing_else_changes(render: Render, files: str) -> None:
    rendered, before = render(files=files), render(files=files.rpartition(":")[0])
    assert (rendered.code, rendered.stderr) == (0, "")
    assert set(rendered.model["services"]) - set(before.model["services"]) == {"valkey"}
    for name in ("nginx", "vllm", "model"):
        assert rendered.service(name) == before.service(name)


@WITH_WORKERS
def test_only_the_gateway_shares_a_network_with_it(render: Render, files: str) -> None:
    rendered = render(files=files)
    joined = {name: set(one["networks"]) for name, one in rendered.model["services"].items()}
    assert {name for name, networks in joined.items() if "state" in networks} == {
        "gateway",
        "valkey",
    }
    assert joined["gateway"] == {"app", "engine", "state"}
    assert joined["valkey"] == {"state"}
    assert rendered.model["networks"]["state"]["internal"] is True
    assert [name for name, one in rendered.model["services"].items() if one.get("ports")] == [
        "nginx"
    ]


@WITH_WORKERS
def test_it_is_hardened_and_bounded_and_keeps_nothing(render: Render, files: str) -> None:
    service = render(files=files).service("valkey")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    assert service["user"] == "999:1000"
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"
    assert "start_interval" not in service["healthcheck"]
    assert int(service["mem_limit"]) == 256 << 20
    assert 0 < service["pids_limit"] <= 32
    assert not service.get("volumes")
    assert re.fullmatch(r"valkey/valkey:[0-9]+\.[0-9]+-alpine", service["image"])
    words = service["command"]
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options["--save"] == ""
    assert options["--appendonly"] == "no"
    assert options["--maxmemory"] == "128mb"


@pytest.mark.parametrize(("env", "workers"), [(b"", "2"), (b"GATEWAY_WORKERS=5\n", "5")])
def test_the_number_comes_from_the_settings(render: Render, env: bytes, workers: str) -> None:
    files = f"{GPU}:compose/workers.yml"
    environment = render(env, files).environment("gateway")
    assert environment["GATEWAY_WORKERS"] == workers
    assert environment["GATEWAY_VALKEY_URL"] == "valkey://valkey:6379"
    assert "GATEWAY_WORKERS" not in render(env).environment("gateway")


def test_the_guide_names_the_overlay() -> None:
    guide = (ROOT / "docs" / "workers.md").read_text()
    assert "COMPOSE_FILE=docker-compose.yml:compose/workers.yml" in guide
