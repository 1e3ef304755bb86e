"""The GPU run's table, its budget and its shapes."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from fit import weights
from fit.shape import read
from gpu import cases, prove, shapes
from launcher.options import settings


def test_names_are_unique_and_shapes_exist() -> None:
    names = [case.name for case in cases.CASES]
    assert len(set(names)) == len(names)
    assert {case.shape for case in cases.CASES} <= shapes.SHAPES.keys()
    assert len({case.shape for case in cases.CASES if case.largest}) > 12


STARTS = [case for case in cases.CASES if case.kind in ("ready", "kv", "nothing_fits")]


@pytest.mark.parametrize("case", STARTS, ids=lambda case: case.name)
def test_the_launcher_takes_the_settings_of_each_start(case: cases.Case) -> None:
    loaded = settings.load({"ENGINE_DEVICE": "cuda", "MODEL": "/m", **case.env})
    debug = "ENGINE_DEBUG" in case.env
    wanted = case.env.get("REQUIRE_CUDA_GRAPHS") != "false" and not debug
    assert (loaded.debug, loaded.require_cuda_graphs) == (debug, wanted)


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_shapes_are_models_that_fit_reads(name: str) -> None:
    shape = read({"vocab_size": 49152, **shapes.SHAPES[name]})
    assert weights.count(shape).total > 10**8


def test_a_made_model_is_whole(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    (real / "tokenizer.json").write_text("{}")
    folder = shapes.make("llama-8b", real, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert (config["vocab_size"], config["eos_token_id"]) == (49152, 2)
    assert (folder / "tokenizer.json").exists()
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert json.loads(data[8 : 8 + length]) == {}


def test_names_choose_and_unknown_ones_are_said() -> None:
    assert [case.name for case in cases.chosen("warm,in-force", 1)] == ["warm", "in-force"]
    assert all(case.gpus == 1 for case in cases.chosen("", 1))
    assert {case.name for case in cases.chosen("tp2", 2)} == {"tp2", "tp2-70b"}
    assert [case.name for case in cases.chosen("warm,warm", 1)] == ["warm"]
    with pytest.raises(ValueError, match="found 1 GPU; wanted 2 for tp2"):
        cases.chosen("tp2", 1)
    with pytest.raises(ValueError, match="found no case 'x'; wanted one of in-force"):
        cases.chosen("x", 1)


def test_a_budget_for_no_case_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    arguments = ["--model", str(tmp_path), "--out", str(tmp_path / "out"), "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, str(Path(prove.__file__)), *arguments, "--budget-s", "1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == prove.BAD_INPUT
    assert "found --budget-s 1, too little for any case" in done.stderr
    assert not (tmp_path / "out/results.json").exists()


def test_usual_seconds_leave_room_in_the_usual_budget() -> None:
    assert max(case.usual_s for case in cases.CASES) < 540
    first = [case for case in cases.CASES if case.name.startswith(("in-", "warm", "worker", "ref"))]
    assert sum(case.usual_s for case in first) <= 540


def test_fit_sees_a_config_and_no_empty_file(tmp_path: Path) -> None:
    """Its weights are those of the config: an empty file would be their size."""
    (tmp_path / "config.json").write_text("{}")
    into = tmp_path / "shape"
    into.mkdir()
    shapes.write_config("llama-8b", tmp_path, into)
    assert [path.name for path in into.iterdir()] == ["config.json"]
