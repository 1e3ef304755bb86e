"""An answer as JSON and as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fit.judge import Fit, Model, gib, measure
from fit.judge import Question as Asked
from fit.memory import MIB
from fit.plans import Plan, Table


def plans_that_do(model: Model, asked: Asked, table: Table) -> list[dict[str, object]]:
    """Plans on which the model fits, cheapest first, with the tensor parallelism it takes."""
    rows = []
    for plan in table.plans:
        found = _on(model, asked, plan)
        if found is not None:
            rows.append(_row(plan, found))
    return rows


def _on(model: Model, asked: Asked, plan: Plan) -> Fit | None:
    ranks = 1
    while ranks <= plan.gpus:
        there = Asked(
            **{**vars(asked), "gpu": plan.gpu, "total": plan.gpu_mib * MIB, "gpus": plan.gpus,
               "ranks": ranks}
        )  # fmt: skip
        found = measure(model, there)
        if found.fits:
            return found
        ranks *= 2
    return None


def _row(plan: Plan, found: Fit) -> dict[str, object]:
    return {
        "slug": plan.slug,
        "gpu": plan.gpu,
        "gpus": plan.gpus,
        "usd_per_hour": plan.usd_per_hour,
        "tensor_parallel_size": found.question.ranks,
        "max_context": found.max_context,
        "max_concurrency": found.max_concurrency,
    }


def as_json(
    model: Model, found: Fit, plans: list[dict[str, object]], table: Table
) -> dict[str, object]:
    """Stable keys. Sizes in bytes, of one GPU; `weights_bytes` of the whole model."""
    asked, parts = found.question, found.division
    return {
        "model": model.name,
        "fits": found.fits,
        "reason": found.reason,
        "estimate": model.shape.rough,
        "weights_bytes": found.weights,
        "weights_from": "files" if model.file_bytes is not None else "config",
        "kv_bytes_per_token": found.cache.bytes_per_token,
        "kv_cache_tokens": found.kv_cache_tokens,
        "context": found.context,
        "max_context": found.max_context,
        "max_concurrency": found.max_concurrency,
        "gpu": {"name": asked.gpu, "bytes": asked.total, "count": asked.gpus},
        "tensor_parallel_size": asked.ranks,
        "gpu_memory_utilization": asked.share,
        "budget": {
            "bytes": parts.budget,
            "weights": parts.weights,
            "activations": parts.activations,
            "other": parts.other,
            "graphs": parts.graphs,
            "reserve": parts.reserve,
            "kv_cache": parts.kv_cache,
        },
        "plans": plans,
        "plans_date": table.date,
    }


def lines(
    model: Model, found: Fit, plans: list[dict[str, object]], table: Table, *, only_plans: bool
) -> Iterator[str]:
    """For people."""
    origin = "of its files" if model.file_bytes is not None else "computed from its config"
    yield f"model     {model.name}: {gib(found.weights)} of weights ({origin})"
    if model.shape.rough:
        yield f"estimate  {model.shape.rough}"
    if only_plans:
        yield "gpu       none here and none named (--gpu): only plans are judged"
    else:
        yield from _here(found)
    yield f"plans     as of {table.date}, cheapest first{'' if plans else ': none does'}"
    for row in plans:
        yield (
            f"  {row['slug']:<20} {row['usd_per_hour']:>6.2f} USD/h"
            f"  TENSOR_PARALLEL_SIZE={row['tensor_parallel_size']}"
            f"  context up to {row['max_context']:,}, {row['max_concurrency']} at once"
        )
    if not only_plans:
        yield f"{'fits' if found.fits else 'does not fit'}: {found.reason}"


def _here(found: Fit) -> Iterator[str]:
    asked, parts = found.question, found.division
    count = f" x {asked.ranks}" if asked.ranks > 1 else ""
    yield (
        f"gpu       {asked.gpu}{count}, {gib(asked.total)},"
        f" {asked.share:.0%} of it: {gib(parts.budget)}"
    )
    yield (
        f"takes     weights {gib(parts.weights)}, activations {gib(parts.activations)},"
        f" CUDA context and ranks {gib(parts.other)}; CUDA graphs {gib(parts.graphs)}"
    )
    yield (
        f"kv cache  {gib(parts.kv_cache)}: {found.kv_cache_tokens:,} tokens at"
        f" {found.cache.bytes_per_token:,} bytes"
    )
    yield (
        f"context   {found.context:,} judged, up to {found.max_context:,};"
        f" {found.max_concurrency} such requests at once"
    )
