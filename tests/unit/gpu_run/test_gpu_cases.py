"""The GPU run's own parts: its table, its budget, its shapes, its results."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fit import weights
from fit.shape import read
from gpu import cases, proofs, report, shapes
from launcher import settings

ROOT = Path(__file__).parents[3]


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
    with pytest.raises(ValueError, match="found no case 'x'; wanted one of in-force"):
        cases.chosen("x", 1)


def test_a_budget_takes_what_it_can_in_order() -> None:
    taken, left = cases.within(list(cases.CASES), 300)
    assert [case.name for case in taken[:2]] == ["in-force", "warm"]
    assert sum(case.usual_s for case in taken) <= 300
    assert {case.name for case in taken} | {case.name for case in left} == {
        case.name for case in cases.CASES
    }


def row(case: str, **more: Any) -> proofs.Row:  # noqa: ANN401 - JSON
    return {"case": case, "seconds": 1.0, "wrong": [], **more}


def test_a_warm_start_is_held_against_the_cold_one() -> None:
    cold = row("in-force", start={"seconds": 180.0, "compile_cache": "cold"})
    assert proofs.against_each_other([cold]) == []
    assert proofs.against_each_other([cold, row("warm", start={"seconds": 60.0})]) == []
    (line,) = proofs.against_each_other([cold, row("warm", start={"seconds": 90.0})])
    assert line == "warm start 0.50 of the cold one"


def test_several_runs_become_one_table(tmp_path: Path) -> None:
    def run(name: str, date: str, rows: list[proofs.Row], left: list[str]) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        head = report.header() | {"date": date, "gpu": ["NVIDIA H200, 580.159.04, 143771 MiB"]}
        report.write(folder, head, rows, left)
        return folder

    kv = {"kv_tokens": 908_560, "kv_predicted": 909_376, "difference": 0.0009}
    first = run("a", "2027-01-01", [row("in-force", wrong=["old"]), row("kv-fp8")], ["warm"])
    second = run("b", "2027-01-02", [row("in-force", **kv), row("warm")], ["tp2"])
    whole = report.merged([second, first])
    assert {one["case"]: one["wrong"] for one in whole["cases"]}["in-force"] == []
    assert whole["left"] == ["tp2"]
    text = report.markdown(whole)
    assert "| in-force | 1 |  | 908,560 (909,376, +0.09%) |" in text
    assert "NVIDIA H200" in text
    assert "Not run: tp2" in text


def test_what_is_wrong_is_in_the_table(tmp_path: Path) -> None:
    bad = row("kv-half", wrong=["KV cache +9.0% off its prediction"])
    report.write(tmp_path, report.header(), [bad], [])
    assert "WRONG: KV cache +9.0%" in (tmp_path / "results.md").read_text()


def test_counters_of_a_page() -> None:
    page = (
        "# TYPE engine_graph_steps counter\n"
        'engine_graph_steps_total{kind="decode",mode="FULL"} 15.0\n'
        'engine_graph_steps_total{mode="NONE",kind="prefill",engine="0"} 1.0\n'
        'engine_graph_steps_total{kind="decode",mode="NONE"} 0.0\n'
    )
    assert proofs.counters(page, "engine_graph_steps_total") == {
        'kind="decode",mode="FULL"': 15.0,
        'kind="prefill",mode="NONE"': 1.0,
    }


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "found no --model DIR"),
        (["--model", "/nonexistent", "--out", "/tmp/x"], "found no --model DIR"),
    ],
)
def test_bad_input_is_one_line(words: list[str], found: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/prove.py", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(found)


def test_the_list_needs_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-I", ROOT / "tests/gpu/prove.py", "--list"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == len(cases.CASES)
