"""Does it fit, with which context and concurrency? What would help where not: fit.remedy. Pure.

`kv_cache_tokens` is the best prediction. The answers (fits, largest context, concurrency) keep the
reserve of fit.memory: a model that "fits" starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fit import dividing, kvcache, memory, packing, release, weights
from fit.kvcache import Cache
from fit.memory import GIB, Division
from fit.release import Release
from fit.shape import Shape
from fit.step import Limits
from fit.weights import Size


@dataclass(frozen=True, kw_only=True)
class Model:
    """`file_bytes`: of its weights on disk, of them `wide_bytes` as float32; None where they are
    computed from the shape."""

    name: str
    shape: Shape
    file_bytes: int | None
    wide_bytes: int = 0

    def size(self, quantization: str | None) -> Size:
        """Weights in memory."""
        if self.file_bytes is None:
            return weights.from_shape(self.shape, quantization)
        return weights.from_files(self.shape, self.file_bytes, self.wide_bytes, quantization)


@dataclass(frozen=True, kw_only=True)
class Question:
    """`context`: None is the model's own; 0 the largest that fits (auto). `total`: bytes of one
    GPU. `seqs`, `batched_tokens`: as set, None is vLLM's choice by the GPU. `vllm`: its version,
    None is the newest known. `eager`: without CUDA graphs."""

    gpu: str
    total: int
    gpus: int | None
    ranks: int
    share: float
    context: int | None
    concurrency: int
    kv_dtype: str | None
    quantization: str | None
    seqs: int | None
    batched_tokens: int | None
    vllm: str | None = None
    eager: bool = False

    def limits(self, shape: Shape) -> Limits:
        """Of one step."""
        seqs, tokens = memory.defaults(self.total, self.gpu)
        context = self.context or shape.context
        tokens = self.batched_tokens or min(tokens, (self.seqs or seqs) * context)
        return Limits(self.seqs or min(seqs, tokens), tokens, context)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The answer for one kind of GPU. `context`: the one judged. `max_context`: up to the model's
    own; 0 where not one request fits. `max_concurrency`: requests of `context` tokens."""

    fits: bool
    reason: str
    question: Question
    division: Division
    cache: Cache
    weights: int
    kv_cache_tokens: int
    context: int
    max_context: int
    max_concurrency: int


def measure(model: Model, question: Question) -> Fit:
    """The whole answer; where it does not fit, its reason has found and wanted."""
    shape, limits = model.shape, question.limits(model.shape)
    size = model.size(question.quantization)
    version = release.of(question.vllm, shape.architecture)
    if question.eager:
        version = replace(version, graphs=False)
    division = memory.divide(
        shape, size, card=(question.total, question.share), ranks=question.ranks, limits=limits,
        vllm=version,
    )  # fmt: skip
    found = _caches(model, question, division, (version, limits))
    problem = _problem(model, found)
    return replace(
        found, weights=size.total, fits=problem is None, reason=problem or _summary(found)
    )


def _caches(
    model: Model, question: Question, division: Division, step: tuple[Release, Limits]
) -> Fit:
    """What the KV cache holds: by the prediction, and at least."""
    shape, (version, limits) = model.shape, step
    likely, careful = (
        kvcache.of(
            shape, ranks=question.ranks, dtype=question.kv_dtype,
            in_flight=steps * limits.batched_tokens,
        )
        for steps in (version.in_flight, release.NEWER.in_flight)
    )  # fmt: skip
    safe = max(0, division.kv_cache_safe)
    longest = careful.longest(safe, shape.longest) if careful.block_bytes else shape.longest
    context = shape.context if question.context is None else question.context or longest
    many = min(int(careful.concurrency(safe, context)), limits.seqs) if context else 0
    if not careful.block_bytes:
        many = limits.seqs if division.kv_cache_safe > 0 else 0  # no KV cache: an encoder
    return Fit(
        fits=False, reason="", question=question, division=division, cache=careful, weights=0,
        kv_cache_tokens=likely.tokens(max(0, division.kv_cache), context) if context else 0,
        context=context, max_context=longest, max_concurrency=many,
    )  # fmt: skip


def _problem(model: Model, found: Fit) -> str | None:
    """What forbids it: found and wanted."""
    asked = found.question
    if asked.gpus is not None and asked.ranks > asked.gpus:
        return f"found {asked.gpus} GPU ({asked.gpu}); wanted {asked.ranks} (TENSOR_PARALLEL_SIZE)"
    return (
        dividing.refusal(model.shape, asked.ranks)
        or packing.refusal(model.shape.quantization, asked.quantization)
        or _too_long(model, found)
        or _too_large(model, found)
    )


def _too_long(model: Model, found: Fit) -> str | None:
    if found.context <= model.shape.longest:
        return None
    return (
        f"found a context of {found.context:,} for {model.name}; wanted at most"
        f" {model.shape.longest:,}, for which it is made"
    )


def _too_large(model: Model, found: Fit) -> str | None:
    asked, parts = found.question, found.division
    where = f"{asked.ranks} x {asked.gpu}" if asked.ranks > 1 else asked.gpu
    if parts.kv_cache_safe <= 0:
        return (
            f"found {model.name} with {gib(parts.weights)} of weights for each GPU; wanted at most"
            f" {gib(max(0, parts.kv_cache_safe + parts.weights))} on {where} at"
            f" GPU_MEMORY_UTILIZATION={asked.share:g}"
        )
    if found.max_concurrency < 1:
        return (
            f"found {gib(parts.kv_cache_safe)} for the KV cache of {model.name} on {where}; wanted"
            f" {gib(found.cache.blocks(found.context) * found.cache.block_bytes)} for one request"
            f" of {found.context:,} tokens"
        )
    if found.max_concurrency < asked.concurrency:
        return (
            f"found room for {found.max_concurrency} requests of {found.context:,} tokens with"
            f" {model.name} on {where}; wanted {asked.concurrency}"
        )
    return None


def _summary(found: Fit) -> str:
    parts = found.division
    return (
        f"weights {gib(parts.weights)} and a KV cache of {gib(parts.kv_cache)}"
        f" ({found.kv_cache_tokens:,} tokens) in {gib(parts.budget)}"
    )


def gib(size: float) -> str:
    """Bytes in words."""
    return f"{size / GIB:.1f} GiB"
