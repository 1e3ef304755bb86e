"""The files of a GPU run, and several runs as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu import report
from gpu.judge import Row
from gpu_rows import row

H200 = "NVIDIA H200, 580.159.04, 143771 MiB"


def run(folder: Path, date: str, rows: list[Row], left: list[str], gpu: tuple[str, ...]) -> Path:
    folder.mkdir()
    report.write(folder, report.header() | {"date": date, "gpu": list(gpu)}, rows, left)
    return folder


def test_several_runs_become_one_table(tmp_path: Path) -> None:
    """The newest row of each case counts, and two GPUs of one kind are the same host's."""
    rows = [row("in-force", wrong=["old"]), row("kv-fp8")]
    first = run(tmp_path / "a", "2027-01-01", rows, ["warm"], (H200,))
    second = run(tmp_path / "b", "2027-01-02", [row("in-force"), row("warm")], [], (H200, H200))
    whole = report.merged([second, first])
    assert [one["case"] for one in whole["cases"]] == ["in-force", "kv-fp8", "warm"]
    assert whole["cases"][0]["wrong"] == []
    assert whole["left"] == []


def test_runs_of_two_kinds_of_gpu_are_no_table(tmp_path: Path) -> None:
    first = run(tmp_path / "a", "2027-01-01", [], [], (H200,))
    other = run(tmp_path / "b", "2027-01-02", [], [], ("NVIDIA L40S, 580.159.04, 46068 MiB",))
    with pytest.raises(ValueError, match=r"found runs of .*H200.* and of .*L40S.*wanted one"):
        report.merged([first, other])


def test_a_folder_without_results_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found no results\.json in .*; wanted one"):
        report.merged([tmp_path])


def test_the_table(tmp_path: Path) -> None:
    bad = row("kv-half", wrong=["KV cache | +9.0% off\nits prediction"])
    refused = {
        "case": "worker-eager",
        "seconds": 60.0,
        "wrong": [],
        "exit": 1,
        "line": "CUDA graphs",
    }
    cold = row("in-force", start={"seconds": 180.0, "compile_cache": "cold"})
    folder = run(tmp_path / "a", "2027-01-01", [cold, row("warm"), bad, refused], ["tp2"], (H200,))
    text = (folder / "results.md").read_text()
    assert text.startswith(f"2027-01-01; {H200}; vLLM ")
    assert (
        "| in-force | 61 | in force, full 3 sizes 1 to 512, piecewise 2 sizes 1 to 512, 8.5 s,"
        " 1.00 GiB, decode FULL 100 | 908,560 (909,376, +0.09%) | ready after 180 s (cold),"
        " 2 streams 256 tok/s, 1 API servers | ok |\n"
    ) in text
    assert "| WRONG: KV cache / +9.0% off its prediction |\n" in text
    assert "| exit 1: CUDA graphs | ok |\n" in text
    assert "| warm start / cold start | 0.33 | ≤ 0.4 | yes |\n" in text
    assert text.endswith("\nNot run: tp2\n")
    assert report.failed(json.loads((folder / "results.json").read_text())["cases"])
