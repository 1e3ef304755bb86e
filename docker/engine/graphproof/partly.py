"""What graphs that were captured don't reach, each with its fix. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from graphproof import downgrades
from graphproof.counts import Counts
from graphproof.downgrades import Downgrade
from graphproof.report import WorkerReport

WHOLE = ("FULL", "FULL_AND_PIECEWISE")  # modes in which decode and mixed steps have graphs
LARGEST_NEEDED = 512  # tokens; vLLM's own limit on captured sizes
# vLLM's lists of sizes go up in steps of 16 requests, so the last one can end this far below.
STEP = 16
ENOUGH_STEPS = 100  # fewer decode steps say nothing about a share
TOO_MANY = 0.05  # share of decode steps without a graph
SETTINGS = "COMPILATION_CONFIG and VLLM_EXTRA_ARGS"


class Shortfall(NamedTuple):
    """One line each."""

    reason: str
    fix: str


def said(report: WorkerReport) -> Downgrade | None:
    """The first of vLLM's lines; a natural one only where there is no other."""
    seen = [found for note in report.notes if (found := downgrades.of(note))]
    return min(seen, key=lambda each: each.natural, default=None)


def find(reports: Sequence[WorkerReport], counts: Counts | None) -> Shortfall | None:
    return (
        _ranks(reports)
        or _mode(reports[0])
        or _missing(reports[0])
        or _too_short(reports[0])
        or _share(reports[0], counts)
    )


def _ranks(reports: Sequence[WorkerReport]) -> Shortfall | None:
    first, *others = reports
    for each in others:
        if (each.mode, each.full_sizes, each.piecewise_sizes) != (
            first.mode,
            first.full_sizes,
            first.piecewise_sizes,
        ):
            return Shortfall(
                f"workers differ: {_worker(first)}; {_worker(each)}",
                "see the engine's log for the worker with less",
            )
    return None


def _worker(report: WorkerReport) -> str:
    name = f"{report.dp_rank}.{report.rank}" if report.dp_rank else str(report.rank)
    full, pieces = len(report.full_sizes), len(report.piecewise_sizes)
    return f"worker {name} has {report.mode}, {full} FULL and {pieces} PIECEWISE sizes"


def _mode(report: WorkerReport) -> Shortfall | None:
    """A lesser mode that vLLM chose. One that was asked for leaves no such line."""
    line = said(report)
    if report.mode in WHOLE or line is None or line.natural:
        return None
    lost = "decode steps" if report.mode == "PIECEWISE" else "steps with prompts"
    what = "no whole graph" if report.mode == "PIECEWISE" else "no graph"
    return Shortfall(f"{report.mode}: {what} for {lost}; vLLM: {line.line!r}", line.fix)


def _missing(report: WorkerReport) -> Shortfall | None:
    """Half of what the mode says was never captured (no log line of vLLM's tells it)."""
    mode = report.mode or ""
    if "PIECEWISE" in mode and not report.piecewise_sizes:
        return Shortfall(
            f"{mode}, but no PIECEWISE graph was captured, so steps with prompts have none:"
            " the model has no part that vLLM compiles",
            "leave --model-impl at its default, or set VLLM_USE_BREAKABLE_CUDAGRAPH=1",
        )
    if "FULL" in mode and not report.full_sizes:
        return Shortfall(
            f"{mode}, but no FULL graph was captured, so decode steps have none of their own",
            f"take capture sizes out of {SETTINGS}",
        )
    return None


def _too_short(report: WorkerReport) -> Shortfall | None:
    if report.max_num_seqs is None or report.kind == "pooling":
        return None
    limits = (LARGEST_NEEDED, report.max_num_batched_tokens or LARGEST_NEEDED)
    needed = min(report.max_num_seqs * report.decode_query_len, *limits)
    largest = _largest(report)
    if needed - largest < STEP * report.decode_query_len:
        return None
    return Shortfall(
        f"graphs end at {largest} tokens, decode batches may have {needed}: larger ones run"
        " without",
        f"take capture sizes out of {SETTINGS}, or lower MAX_NUM_SEQS to"
        f" {largest // report.decode_query_len}",
    )


def _largest(report: WorkerReport) -> int:
    return max((*report.full_sizes, *report.piecewise_sizes))


def _share(report: WorkerReport, counts: Counts | None) -> Shortfall | None:
    if counts is None:
        return None
    steps = counts.steps["decode"]
    total, without = sum(steps.values()), steps["NONE"]
    if total < ENOUGH_STEPS or without < TOO_MANY * total:
        return None
    largest = counts.largest_eager_decode_tokens
    return Shortfall(
        f"{without} of {total} decode steps ({without / total:.0%}) ran without a graph, the"
        f" largest with {largest} tokens",
        f"set --max-cudagraph-capture-size {largest} in VLLM_EXTRA_ARGS, or lower MAX_NUM_SEQS"
        if largest > _largest(report)
        else "look for what differs in those steps: LoRA, encoder inputs, data parallel ranks",
    )
