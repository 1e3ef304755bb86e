"""Reports and counters as files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from graphproof import counts, report
from graphproof.report import ReportError, WorkerReport

MADE = WorkerReport(
    dp_rank=0, rank=0, vllm="0.33.0", torch="2.14.0", runner="v2", device="cuda", kind="generate",
    mode="FULL", full_sizes=(1, 2), capture_seconds=5, memory={"total": 2**37}, notes=("a", "b"),
)  # fmt: skip


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    for made in (replace(MADE, rank=1), replace(MADE, dp_rank=1), MADE):
        report.write(tmp_path, made)
    report.write(tmp_path, MADE)
    assert report.read_all(tmp_path) == [MADE, replace(MADE, rank=1), replace(MADE, dp_rank=1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "worker-dp0-rank0.json", "worker-dp0-rank1.json", "worker-dp1-rank0.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", "0"),
        ("rank", True),
        ("full_sizes", [1, "2"]),
        ("memory", {"total": "all"}),
        ("device", "tpu"),
        ("mode", 1),
        ("capture_seconds", "5"),
        ("notes", "a"),
        ("surprise", 1),
    ],
)
def test_what_is_no_report_is_named(tmp_path: Path, name: str, value: object) -> None:
    wrong = json.loads(MADE.to_json()) | {name: value}
    (tmp_path / "worker-dp0-rank3.json").write_text(json.dumps(wrong))
    with pytest.raises(ReportError, match=r"worker-dp0-rank3.json: "):
        report.read_all(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 5000])
def test_neither_is_this(text: str) -> None:
    with pytest.raises(ReportError):
        WorkerReport.from_json(text)


def test_counts_are_summed_over_engines_and_once_for_their_ranks(tmp_path: Path) -> None:
    assert counts.read_all(tmp_path) == counts.Counts()
    for dp_rank, rank, number in ((0, 1, 100), (0, 0, 1), (1, 2, 10), (1, 3, 100)):
        written = counts.create(counts.path_of(tmp_path, dp_rank, rank))
        for place in range(counts.LENGTH):
            written[place] = number * (place + 1)
    seen = counts.read_all(tmp_path)
    assert seen.steps["decode"] == {"FULL": 11, "PIECEWISE": 22, "NONE": 33}
    assert seen.steps["prefill"] == {"FULL": 44, "PIECEWISE": 55, "NONE": 66}
    assert seen.tokens["decode"] == {"FULL": 77, "PIECEWISE": 88, "NONE": 99}
    assert seen.largest_eager_decode_tokens == 130


def test_another_process_sees_what_is_stored(tmp_path: Path) -> None:
    written = counts.create(path := counts.path_of(tmp_path, 0, 0))
    seen = counts.view(path)
    read, write = os.pipe()
    if not (child := os.fork()):
        written[counts.LARGEST_AT] = 2**40
        os.write(write, b"x")
        os._exit(0)
    assert os.read(read, 1) == b"x"
    assert seen[counts.LARGEST_AT] == 2**40
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)
    os.close(write)


def test_a_file_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    counts.path_of(tmp_path, 0, 0).touch()
    assert counts.read_all(tmp_path) == counts.Counts()
