"""Rows of results as an H200 gives them."""

from __future__ import annotations

from typing import Any

from gpu.cases import CASES, Case
from gpu.judge import Row


def case(name: str) -> Case:
    return next(one for one in CASES if one.name == name)


def graphs(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    nothing = {"FULL": 0, "PIECEWISE": 0, "NONE": 0}
    return {
        "verdict": "in force", "reason": "FULL_AND_PIECEWISE: 102 graphs",
        "full_sizes": [1, 2, 512], "piecewise_sizes": [1, 512], "capture_s": 8.5,
        "capture_bytes": 2**30,
        "steps": {"decode": nothing | {"FULL": 100}, "prefill": nothing | {"PIECEWISE": 2}},
        "tokens": {"decode": nothing | {"FULL": 126}, "prefill": nothing | {"PIECEWISE": 60}},
        **more,
    }  # fmt: skip


def row(name: str, **more: Any) -> Row:  # noqa: ANN401 - JSON
    return {
        "case": name, "seconds": 61.0, "wrong": [], "message": "ready", "debug": False,
        "graphs": graphs(), "kv_tokens": 908_560, "kv_predicted": 909_376, "difference": 0.0009,
        "start": {"seconds": 60.0, "compile_cache": "warm"}, "api_servers": 1,
        "load": [{"streams": 2, "prompt": 60, "tokens": 128, "failed": 0, "seconds": 0.5}],
        **more,
    }  # fmt: skip
