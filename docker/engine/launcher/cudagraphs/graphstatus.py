"""The workers' proof → the `graphs` part of the status. Pure."""

from collections.abc import Iterable

from graphproof.counts import Counts
from graphproof.report import WorkerReport
from graphproof.verdict import Verdict

from launcher.cudagraphs.proof import Proof

KINDS = ("decode", "prefill")
MODES = ("FULL", "PIECEWISE", "NONE")


def as_json(shown: Verdict, proof: Proof) -> dict[str, object]:
    """Sizes in tokens, times in seconds. With several workers: what all of them have, and the
    largest of times and bytes (they work side by side, each on its own GPU)."""
    reports = proof.reports
    return {
        "verdict": shown.verdict,
        "reason": shown.reason,
        "fix": shown.fix,
        "mode": mode(reports),
        "full_sizes": in_all(each.full_sizes for each in reports),
        "piecewise_sizes": in_all(each.piecewise_sizes for each in reports),
        "captured": min((each.graphs for each in reports), default=0),
        "capture_s": largest(each.capture_seconds for each in reports),
        "capture_bytes": largest(each.capture_bytes for each in reports),
        "compile_s": largest(each.compile_seconds for each in reports),
        "workers": len(reports),
        "steps": _table(proof.counts.steps if proof.counts else {}),
        "tokens": _table(proof.counts.tokens if proof.counts else {}),
        "decode_without_graph": without_graph(proof.counts),
    }


def mode(reports: Iterable[WorkerReport]) -> str | None:
    """The workers' mode; all of them, where they differ."""
    return ", ".join(sorted({each.mode for each in reports if each.mode})) or None


def in_all(sizes: Iterable[tuple[int, ...]]) -> list[int]:
    """Sizes that every worker captured, in order."""
    each = [set(one) for one in sizes]
    return sorted(set.intersection(*each)) if each else []


def largest(values: Iterable[float | None]) -> float | None:
    """The largest of the known values."""
    return max((value for value in values if value is not None), default=None)


def _table(counted: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {kind: {mode: counted.get(kind, {}).get(mode, 0) for mode in MODES} for kind in KINDS}


def without_graph(counts: Counts | None) -> dict[str, float | int | None]:
    """Shares of decode steps and their tokens that ran without a graph, from 0 to 1."""
    return {
        "steps_share": _share(counts.steps["decode"]) if counts else None,
        "tokens_share": _share(counts.tokens["decode"]) if counts else None,
        "largest_batch_tokens": (counts.largest_eager_decode_tokens or None) if counts else None,
    }


def _share(by_mode: dict[str, int]) -> float | None:
    total = sum(by_mode.values())
    return round(by_mode["NONE"] / total, 6) if total else None
