"""Does it fit, with which context and concurrency, and what would help where it does not? Pure.

`kv_cache_tokens` is the best prediction. The answers (fits, largest context, concurrency) keep the
reserve of fit.memory: a model that "fits" starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fit import kvcache, memory, weights
from fit.kvcache import Cache
from fit.memory import GIB, Division, Limits
from fit.shape import Shape

# A context below this serves no chat; a larger one is worth a smaller batch.
USEFUL_CONTEXT = 2048
RANKS = (2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Model:
    """`file_bytes`: of its weights on disk, None where they are computed from the shape."""

    name: str
    shape: Shape
    file_bytes: int | None

    def bytes(self, quantization: str | None) -> int:
        """Weights in memory."""
        if self.file_bytes is None:
            return weights.from_shape(self.shape, quantization)
        return weights.from_files(self.shape, self.file_bytes, quantization)


@dataclass(frozen=True, kw_only=True)
class Question:
    """`context`: None is the model's own; 0 the largest that fits (auto). `total`: bytes of one
    GPU. `seqs`, `batched_tokens`: as set, None is vLLM's choice by the GPU."""

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

    @property
    def limits(self) -> Limits:
        usual = memory.defaults(self.total, self.gpu)
        tokens = self.batched_tokens or usual.batched_tokens
        return Limits(self.seqs or usual.seqs, tokens)


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


def judge(model: Model, question: Question) -> Fit:
    """The whole answer; its reason has found, wanted and fix where it does not fit."""
    found = measure(model, question)
    if found.fits:
        return found
    return replace(found, reason=f"{found.reason}; fix: {_remedy(model, found)}")


def measure(model: Model, question: Question) -> Fit:
    """Without a remedy."""
    shape, limits = model.shape, question.limits
    size = model.bytes(question.quantization)
    division = memory.divide(
        shape, size, total=question.total, share=question.share, ranks=question.ranks, limits=limits
    )
    cache = kvcache.of(
        shape, ranks=question.ranks, dtype=question.kv_dtype, batched_tokens=limits.batched_tokens
    )
    safe = max(0, division.kv_cache_safe)
    longest = cache.longest(safe, shape.context) if cache.block_bytes else shape.context
    context = shape.context if question.context is None else question.context or longest
    many = min(int(cache.concurrency(safe, context)), limits.seqs) if context else 0
    if not cache.block_bytes:
        many = limits.seqs if division.kv_cache_safe > 0 else 0  # no KV cache: an encoder
    found = Fit(
        fits=False, reason="", question=question, division=division, cache=cache, weights=size,
        kv_cache_tokens=cache.tokens(max(0, division.kv_cache), context) if context else 0,
        context=context, max_context=longest, max_concurrency=many,
    )  # fmt: skip
    problem = _problem(model, found)
    return replace(found, fits=problem is None, reason=problem or _summary(found))


def _problem(model: Model, found: Fit) -> str | None:
    asked, parts = found.question, found.division
    where = f"{asked.ranks} x {asked.gpu}" if asked.ranks > 1 else asked.gpu
    if asked.gpus is not None and asked.ranks > asked.gpus:
        return f"found {asked.gpus} GPU ({asked.gpu}); wanted {asked.ranks} (TENSOR_PARALLEL_SIZE)"
    if model.shape.heads % asked.ranks:
        return (
            f"found {model.shape.heads} attention heads in {model.name}; wanted a multiple of"
            f" TENSOR_PARALLEL_SIZE={asked.ranks}"
        )
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


def _remedy(model: Model, found: Fit) -> str:
    """The cheapest change that works, by trying them."""
    asked = found.question
    if asked.gpus is not None and asked.ranks > asked.gpus:
        return f"TENSOR_PARALLEL_SIZE={asked.gpus}, or a host with more GPUs"
    if model.shape.heads % asked.ranks:
        return "a TENSOR_PARALLEL_SIZE that divides them, or another MODEL"
    for change, words in _changes(asked, found):
        if measure(model, change).fits:
            return words
    return "a smaller or quantised MODEL, or a larger GPU"


def _changes(asked: Question, found: Fit) -> list[tuple[Question, str]]:
    changes: list[tuple[Question, str]] = []
    shorter = replace(asked, context=_round(found.max_context))
    if _round(found.max_context) >= min(USEFUL_CONTEXT, found.context):
        changes.append((shorter, f"MAX_MODEL_LEN={shorter.context} (or auto)"))
    if asked.share < 0.95:
        changes.append((replace(asked, share=0.95), "GPU_MEMORY_UTILIZATION=0.95"))
    if asked.kv_dtype is None:
        fp8 = replace(asked, kv_dtype="fp8")
        changes.append((fp8, "KV_CACHE_DTYPE=fp8 (compute capability 8.9 or newer)"))
    for ranks in RANKS:
        if ranks > asked.ranks and ranks <= (asked.gpus or 0):
            more = replace(asked, ranks=ranks)
            changes.append((more, f"TENSOR_PARALLEL_SIZE={ranks}"))
    if asked.quantization is None:
        packed = replace(asked, quantization="fp8")
        changes.append((packed, "QUANTIZATION=fp8 (compute capability 8.9 or newer)"))
        small = replace(packed, context=0)
        changes.append((small, "QUANTIZATION=fp8 with MAX_MODEL_LEN=auto"))
    return changes


def _round(context: int) -> int:
    """Down to a multiple of 256."""
    return context // 256 * 256 if context >= 256 else context


def gib(size: float) -> str:
    """Bytes in words."""
    return f"{size / GIB:.1f} GiB"
