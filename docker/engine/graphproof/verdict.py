"""Reports and counted steps → one verdict on CUDA graphs, its reason and what to do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graphproof import partly
from graphproof.counts import Counts
from graphproof.report import WorkerReport

Word = Literal["in force", "partly", "eager", "not applicable", "unknown"]
GIB = 2**30


@dataclass(frozen=True)
class Verdict:
    """One line each; fix is empty where there is nothing to do."""

    verdict: Word
    reason: str
    fix: str = ""


def judge(
    reports: Sequence[WorkerReport],
    expected_workers: int | None,
    counts: Counts | None,
    device: str,
) -> Verdict:
    """expected_workers: where it is known how many must report; device: cuda or cpu."""
    if device == "cpu" or any(each.device == "cpu" for each in reports):
        return Verdict("not applicable", "the CPU backend has no CUDA graphs")
    early = _unknown(reports, expected_workers) or _nothing(reports)
    if early:
        return early
    short = partly.find(reports, counts)
    return Verdict("partly", *short) if short else Verdict("in force", _in_force(reports))


def captured(report: WorkerReport) -> bool:
    return bool(report.full_sizes or report.piecewise_sizes)


def _unknown(reports: Sequence[WorkerReport], expected: int | None) -> Verdict | None:
    if not reports:
        return Verdict(
            "unknown",
            "no worker reported, so vLLM did not load the plugin graphproof",
            "leave PYTHONPATH and VLLM_PLUGINS as the stack sets them",
        )
    failed = next((each for each in reports if each.error), None)
    if failed:
        return Verdict(
            "unknown",
            f"graphproof does not fit vLLM {failed.vllm} (worker {failed.rank}: {failed.error})",
            "use a vLLM of docker/engine/versions.toml",
        )
    if expected is not None and len(reports) < expected:
        return Verdict(
            "unknown", f"{len(reports)} of {expected} workers reported", "see the engine's log"
        )
    return None


def _nothing(reports: Sequence[WorkerReport]) -> Verdict | None:
    if any(captured(each) for each in reports):
        return None
    first = reports[0]
    if first.kind == "pooling":
        return Verdict(
            "not applicable",
            "a pooling model decodes nothing, and vLLM captured no graphs for it",
        )
    return _eager(first)


def _eager(report: WorkerReport) -> Verdict:
    """Why nothing was captured: by vLLM's own line, else by what it made of its settings."""
    said = partly.said(report)
    if said:
        return Verdict("eager", f"nothing was captured; vLLM: {said.line!r}", said.fix)
    if report.enforce_eager:
        return Verdict(
            "eager",
            "nothing was captured, since enforce_eager is set",
            "take --enforce-eager out of VLLM_EXTRA_ARGS",
        )
    if report.mode in (None, "NONE"):
        return Verdict(
            "eager",
            f"nothing was captured: vLLM resolved cudagraph_mode to {report.mode},"
            f" compile mode {report.compile_mode}",
            f"take cudagraph_mode, mode and -O0 out of {partly.SETTINGS}",
        )
    said_mode = f"nothing was captured, although cudagraph_mode is {report.mode}"
    if report.mode != "PIECEWISE":  # whole graphs need nothing of the model
        return Verdict(
            "eager",
            f"{said_mode}: no size was left to capture",
            f"take capture sizes out of {partly.SETTINGS}",
        )
    return Verdict(
        "eager",
        f"{said_mode} (compile mode {report.compile_mode}): the model has no part that vLLM"
        " compiles",
        'set COMPILATION_CONFIG={"cudagraph_mode": "FULL_DECODE_ONLY"} or'
        " VLLM_USE_BREAKABLE_CUDAGRAPH=1, and leave --model-impl at its default",
    )


def _in_force(reports: Sequence[WorkerReport]) -> str:
    first = reports[0]
    sizes = sorted({*first.full_sizes, *first.piecewise_sizes})
    seconds = [each.capture_seconds for each in reports if each.capture_seconds is not None]
    taken = [each.capture_bytes for each in reports if each.capture_bytes is not None]
    return ", ".join(
        (
            f"{first.mode}: {first.graphs} graphs for steps of {sizes[0]} to {sizes[-1]} tokens",
            *([f"captured in {max(seconds):.1f} s"] if seconds else []),
            *([f"{max(taken) / GIB:.2f} GiB each"] if taken and len(reports) > 1 else []),
            *([f"{taken[0] / GIB:.2f} GiB"] if taken and len(reports) == 1 else []),
            f"{len(reports)} worker{'s' if len(reports) > 1 else ''}",
        )
    )
