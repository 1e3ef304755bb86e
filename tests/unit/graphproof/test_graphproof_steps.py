"""Which kind a step is, and where it is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphproof import counts
from graphproof.counts import Counts
from graphproof.steps import FULL, NONE, PIECEWISE, Steps, decodes
from shaped import Step, step


@pytest.mark.parametrize(
    ("what", "query_len", "decode"),
    [
        (step([1], [1]), 1, True),
        (step([1] * 256, [7] * 256), 1, True),
        (step([40], [], new=1), 1, False),
        (step([1], [], new=1), 1, False),  # all but the prompt's last token was in the cache
        (step([1, 40], [5], new=1), 1, False),
        (step([512], [0]), 1, False),  # the next part of a long prompt
        (step([1, 1], [5, 0]), 1, False),  # its last part, one token long
        (step([1, 9], [5, 3], resumed=1), 1, False),  # was preempted, computes again
        (step([2], [5]), 1, False),
        (step([4, 4, 1], [5, 6, 7]), 4, True),  # drafts
        (step([4, 5], [5, 6]), 4, False),
    ],
)
def test_kind(what: Step, query_len: int, decode: bool) -> None:
    assert decodes(what, what.total_num_scheduled_tokens, query_len) is decode


def counted(path: Path, *, full: bool = True, pieces: bool = True) -> Counts:
    """After one decode step in each mode, two prefill steps and one without tokens."""
    steps = Steps(counts.create(path), 1, full=full, pieces=pieces)
    for name in ("FULL", "PIECEWISE", "NONE"):
        steps.mode = steps.by_name[name]
        steps.count(step([1] * 8, [3] * 8))
    steps.mode = NONE
    steps.count(step([1] * 300, [3] * 300))
    steps.count(step([], []))
    steps.mode = steps.by_name["PIECEWISE"]
    steps.count(step([100], [], new=1))
    steps.mode = NONE
    steps.count(step([9000], [], new=1))
    return Counts.from_numbers(tuple(counts.view(path)))


def test_steps_and_tokens(tmp_path: Path) -> None:
    seen = counted(counts.path_of(tmp_path, 0, 0))
    assert seen.steps["decode"] == {"FULL": 1, "PIECEWISE": 1, "NONE": 2}
    assert seen.tokens["decode"] == {"FULL": 8, "PIECEWISE": 8, "NONE": 308}
    assert seen.steps["prefill"] == {"FULL": 0, "PIECEWISE": 1, "NONE": 1}
    assert seen.tokens["prefill"] == {"FULL": 0, "PIECEWISE": 100, "NONE": 9000}
    assert seen.largest_eager_decode_tokens == 300


def test_pieces_that_nobody_captured_are_none(tmp_path: Path) -> None:
    """vLLM's V1 runner says PIECEWISE for a model that has no compiled part."""
    seen = counted(counts.path_of(tmp_path, 0, 0), pieces=False)
    assert seen.steps["decode"] == {"FULL": 1, "PIECEWISE": 0, "NONE": 3}
    assert (FULL, PIECEWISE, NONE) == (0, 1, 2)
