"""How many API servers: as asked, or by the cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher.host import apiservers
from launcher.options.settings import load


def count(cores: int, monkeypatch: pytest.MonkeyPatch, **environ: str) -> int | None:
    monkeypatch.setattr(apiservers.os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(apiservers, "CPU_MAX", Path("/nonexistent"))
    settings = load({"ENGINE_DEVICE": "cuda", **environ})
    return apiservers.resolved(settings, environ, True).api_server_count


@pytest.mark.parametrize(
    ("cores", "servers"), [(1, 1), (7, 1), (8, 2), (15, 2), (16, 4), (24, 4), (192, 4)]
)
@pytest.mark.parametrize("text", ["", "auto", "AUTO"])
def test_by_cores(cores: int, servers: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(cores, monkeypatch, API_SERVER_COUNT=text) == servers


def test_what_is_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(2, monkeypatch, API_SERVER_COUNT="7") == 7


def test_where_only_one_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(64, monkeypatch, ENGINE_DEVICE="cpu") == 1
    assert count(64, monkeypatch, VLLM_ALLOW_RUNTIME_LORA_UPDATING="1") == 1
    settings = load({"ENGINE_DEVICE": "cuda"})
    assert apiservers.resolved(settings, {}, False).api_server_count == 1


@pytest.mark.parametrize("flag", ["--data-parallel-size 2", "-dp 2", "--headless", "--nnodes=2"])
def test_where_vllm_chooses(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(64, monkeypatch, VLLM_EXTRA_ARGS=flag) is None


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 4), ("200000 100000", 2), ("50000 100000", 1), ("", 4)]
)
def test_a_containers_quota(
    tmp_path: Path, text: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiservers.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert apiservers.cores(tmp_path / "cpu.max") == cores
