"""What is wrong with what was seen of a case, in lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpu.cases import Case

LOST_TOKENS = 0.01  # of a load's, that the counters may miss: they are read while it serves
LARGEST_EAGER_SHARE = 0.05
# What an H200 gave with vLLM 0.24.0 at 0.90 and 4,096 (docs/engine.md), and how far off it we are.
MEASURED_KV_TOKENS, MEASURED_ON = 908_560, ("H200", "0.24.0")
MEASURED_CASES = ("in-force", "warm")
Row = dict[str, Any]


def graphs(case: Case, row: Row, device: str) -> list[str]:
    """The verdict and the modes that decode steps ran in. Shapes are about memory alone."""
    if case.name.startswith("shape-"):
        return []
    found, verdict = row["graphs"], row["graphs"].get("verdict")
    wanted = "not applicable" if device == "cpu" else "eager" if row["debug"] else "in force"
    if verdict != wanted:
        return [f"graphs {verdict} ({found.get('reason')}), wanted {wanted}"]
    if wanted != "in force":
        return []
    wrong = [f"no {name}" for name in ("full_sizes", "capture_s", "capture_bytes")
             if not found.get(name)]  # fmt: skip
    return wrong + (_decode(found) if case.streams else [])


def _decode(found: Row) -> list[str]:
    steps = found["steps"]["decode"]
    if not steps.get("FULL", 0) + steps.get("PIECEWISE", 0):
        return [f"no decode step ran in a graph: {steps}"]
    share = steps.get("NONE", 0) / sum(steps.values())
    return [f"{share:.0%} of decode steps without a graph"] if share >= LARGEST_EAGER_SHARE else []


def start(case: Case, row: Row, device: str) -> list[str]:
    """Cold where it has to be cold, warm where it has to be warm. Nothing is compiled on a CPU."""
    seen = row["start"].get("compile_cache")
    if device == "cpu" or case.cache in (None, seen):
        return []
    return [f"the start was {seen}, wanted {case.cache}"]


def prediction(case: Case, row: Row) -> list[str]:
    """The launcher's prediction against vLLM's own number of tokens."""
    if row["difference"] is None:
        return ["no KV-cache prediction beside vLLM's number"]
    off = abs(row["difference"])
    wrong = case.within is not None and off > case.within
    return [f"KV cache {row['difference']:+.1%} off its prediction"] if wrong else []


def measured(case: Case, row: Row, host: str) -> list[str]:
    """The prediction against what was measured before, where host (GPU and vLLM) is the same."""
    if case.name not in MEASURED_CASES or not all(part in host for part in MEASURED_ON):
        return []
    off = (row["kv_predicted"] or 0) / MEASURED_KV_TOKENS - 1
    return [f"prediction {off:+.1%} off {MEASURED_KV_TOKENS:,}"] if abs(off) > 0.03 else []


def promise(row: Row) -> list[str]:
    """Requests that fit said fit at once, against the KV cache that is there."""
    fit = row.get("fit")
    if not fit or not row["kv_tokens"]:
        return []
    wanted = fit["max_concurrency"] * fit["context"]
    if row["kv_tokens"] >= wanted:
        return []
    return [
        f"fit promised {fit['max_concurrency']} requests of {fit['context']:,} tokens, and the KV"
        f" cache has {row['kv_tokens']:,}"
    ]


def loads(row: Row) -> list[str]:
    return [f"{one['failed']} of {one['streams']} streams failed" for one in row["load"]
            if one["failed"]]  # fmt: skip


def tokens(row: Row, before: Row) -> list[str]:
    """Tokens of all steps against those of the load: its prompts, and what was generated but the
    last token of each request, which no step reads again."""
    if any(one["failed"] for one in row["load"]):
        return []
    made = sum(one["prompt"] + one["tokens"] - one["streams"] for one in row["load"])
    counted = stepped(row["graphs"]) - stepped(before)
    if abs(counted - made) <= LOST_TOKENS * made:
        return []
    return [f"{counted:,} tokens in the counters, wanted {made:,}"]


def stepped(found: Mapping[str, Any]) -> int:
    """Tokens of all steps, of the status' `graphs`."""
    return sum(sum(modes.values()) for modes in (found.get("tokens") or {}).values())


def pages(own: str, vllms: str) -> list[str]:
    """The launcher's and vLLM's /metrics count the same steps and tokens."""
    return [
        f"{name} differ: launcher {here}, vLLM {there}"
        for name in ("engine_graph_steps_total", "engine_graph_step_tokens_total")
        if (here := counters(own, name)) != (there := counters(vllms, name))
    ]


def counters(text: str, name: str) -> dict[str, float]:
    """Labels (sorted) → value, of the samples that are not 0."""
    found = {}
    for labels, value in re.findall(rf"^{name}\{{([^}}]*)\}} (\S+)$", text, re.MULTILINE):
        kept = sorted(one for one in labels.split(",") if one.startswith(("kind=", "mode=")))
        if float(value):
            found[",".join(kept)] = float(value)
    return found


def refused(case: Case, code: int | None, phase: str | None, line: str) -> list[str]:
    """It ended by itself, with an exit code and its reason as the last line."""
    wrong = []
    if code in (None, 0) or phase == "ready":
        wrong.append(f"it was not refused (phase {phase}, exit {code})")
    if case.words not in line:
        wrong.append(f"its line lacks {case.words!r}")
    return wrong


def debug(case: Case, row: Row) -> list[str]:
    """Debug mode is shouted, and nothing else is."""
    wanted = case.env.get("ENGINE_DEBUG") == "1"
    if row["debug"] != wanted or ("DEBUG" in row["message"]) != wanted:
        return [f"debug {row['debug']} in status ({row['message']}), wanted {wanted}"]
    return []
