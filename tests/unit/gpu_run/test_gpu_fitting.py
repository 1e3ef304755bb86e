"""What the GPU run asks fit, on a captured H200."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from common import gpu_host
from gpu import cases, fitting
from gpu.engine import Place


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Place, Path]:
    """A place and a tokenizer's folder, on a host with one H200."""
    programs, real = tmp_path / "bin", tmp_path / "real"
    programs.mkdir()
    real.mkdir()
    (real / "config.json").write_text(json.dumps({"bos_token_id": 1}))
    gpu_host.install("h200", programs)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return Place(tmp_path, tmp_path, time.monotonic() + 60, "", lambda _: None), real


LARGEST = [case for case in cases.CASES if case.largest]


@pytest.mark.parametrize("case", LARGEST, ids=lambda case: case.name)
def test_each_shape_has_a_largest_context_that_fits(
    case: cases.Case, ask: tuple[Place, Path]
) -> None:
    found = fitting.ask(*ask, case.shape, case.env)
    assert found["max_context"] >= 4096
    again = fitting.ask(*ask, case.shape, {**case.env, "MAX_MODEL_LEN": str(found["max_context"])})
    assert again["fits"], again["reason"]
    assert again["max_concurrency"] >= 1


def test_weights_are_those_of_the_config(ask: tuple[Place, Path]) -> None:
    case = next(one for one in cases.CASES if one.name == "llama-70b-does-not-fit")
    found = fitting.ask(*ask, case.shape, case.env)
    assert not found["fits"]
    assert found["weights_bytes"] > 130 * 10**9


def test_settings_that_fit_can_not_read_are_said(ask: tuple[Place, Path]) -> None:
    with pytest.raises(fitting.FitFailed, match="fit: GPU_MEMORY_UTILIZATION: found '9'"):
        fitting.ask(*ask, "llama-8b", {"GPU_MEMORY_UTILIZATION": "9"})
