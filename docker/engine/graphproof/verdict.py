"""Reports and counted steps → one verdict on CUDA graphs, its reason and what to do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graphproof import downgrades
from graphproof.counts import Counts
from graphproof.downgrades import Downgrade
from graphproof.report import WorkerReport

Word = Literal["in force", "partly", "eager", "not applicable", "unknown"]
GIB = 2**30
WHOLE = ("FULL", "FULL_AND_PIECEWISE")  # modes in which decode and mixed steps have graphs
LARGEST_NEEDED = 512  # tokens; vLLM's own limit on captured sizes
# vLLM's lists of sizes go up in steps of 16 requests, so the last one can end this far below.
STEP = 16
ENOUGH_STEPS = 100  # fewer decode steps say nothing about a share
TOO_MANY = 0.05  # share of decode steps without a graph
SETTINGS = "COMPILATION_CONFIG and VLLM_EXTRA_ARGS"


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
    return (
        _unknown(reports, expected_workers)
        or _nothing(reports)
        or _partly(reports, counts)
        or Verdict("in force", _in_force(reports))
    )


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
    said = _said(report)
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
            f"take cudagraph_mode, mode and -O0 out of {SETTINGS}",
        )
    return Verdict(
        "eager",
        f"nothing was captured, although cudagraph_mode is {report.mode}"
        f" (compile mode {report.compile_mode}): the model has no part that vLLM compiles",
        'set COMPILATION_CONFIG={"cudagraph_mode": "FULL_DECODE_ONLY"} or'
        " VLLM_USE_BREAKABLE_CUDAGRAPH=1, and leave --model-impl at its default",
    )


def _said(report: WorkerReport) -> Downgrade | None:
    """The first of vLLM's lines; a natural one only where there is no other."""
    seen = [found for note in report.notes if (found := downgrades.of(note))]
    return min(seen, key=lambda each: each.natural, default=None)


def _partly(reports: Sequence[WorkerReport], counts: Counts | None) -> Verdict | None:
    return (
        _ranks(reports)
        or _mode(reports[0])
        or _missing(reports[0])
        or _too_short(reports[0])
        or _share(counts)
    )


def _ranks(reports: Sequence[WorkerReport]) -> Verdict | None:
    first, *others = reports
    for each in others:
        if (each.mode, each.full_sizes, each.piecewise_sizes) != (
            first.mode,
            first.full_sizes,
            first.piecewise_sizes,
        ):
            return Verdict(
                "partly",
                f"workers differ: {_worker(first)}; {_worker(each)}",
                "see the engine's log for the worker with less",
            )
    return None


def _worker(report: WorkerReport) -> str:
    name = f"{report.dp_rank}.{report.rank}" if report.dp_rank else str(report.rank)
    full, pieces = len(report.full_sizes), len(report.piecewise_sizes)
    return f"worker {name} has {report.mode}, {full} FULL and {pieces} PIECEWISE sizes"


def _mode(report: WorkerReport) -> Verdict | None:
    """A lesser mode that vLLM chose. One that was asked for leaves no such line."""
    said = _said(report)
    if report.mode in WHOLE or said is None or said.natural:
        return None
    lost = "decode steps" if report.mode == "PIECEWISE" else "steps with prompts"
    what = "no whole graph" if report.mode == "PIECEWISE" else "no graph"
    return Verdict("partly", f"{report.mode}: {what} for {lost}; vLLM: {said.line!r}", said.fix)


def _missing(report: WorkerReport) -> Verdict | None:
    """Half of what the mode says was never captured (no log line of vLLM's tells it)."""
    mode = report.mode or ""
    if "PIECEWISE" in mode and not report.piecewise_sizes:
        return Verdict(
            "partly",
            f"{mode}, but no PIECEWISE graph was captured, so steps with prompts have none:"
            " the model has no part that vLLM compiles",
            "leave --model-impl at its default, or set VLLM_USE_BREAKABLE_CUDAGRAPH=1",
        )
    if "FULL" in mode and not report.full_sizes:
        return Verdict(
            "partly",
            f"{mode}, but no FULL graph was captured, so decode steps have none of their own",
            f"take capture sizes out of {SETTINGS}",
        )
    return None


def _too_short(report: WorkerReport) -> Verdict | None:
    if report.max_num_seqs is None or report.kind == "pooling":
        return None
    limits = (LARGEST_NEEDED, report.max_num_batched_tokens or LARGEST_NEEDED)
    needed = min(report.max_num_seqs * report.decode_query_len, *limits)
    largest = max((*report.full_sizes, *report.piecewise_sizes))
    if needed - largest < STEP * report.decode_query_len:
        return None
    return Verdict(
        "partly",
        f"graphs end at {largest} tokens, decode batches may have {needed}: larger ones run"
        " without",
        f"take capture sizes out of {SETTINGS}, or lower MAX_NUM_SEQS to"
        f" {largest // report.decode_query_len}",
    )


def _share(counts: Counts | None) -> Verdict | None:
    if counts is None:
        return None
    steps = counts.steps["decode"]
    total, without = sum(steps.values()), steps["NONE"]
    if total < ENOUGH_STEPS or without < TOO_MANY * total:
        return None
    return Verdict(
        "partly",
        f"{without} of {total} decode steps ({without / total:.0%}) ran without a graph, the"
        f" largest with {counts.largest_eager_decode_tokens} tokens",
        "raise --max-cudagraph-capture-size in VLLM_EXTRA_ARGS to that, or lower MAX_NUM_SEQS",
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
