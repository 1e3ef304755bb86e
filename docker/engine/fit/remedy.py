"""What would help where a model does not fit: the cheapest change that works, by trying. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fit import dividing, packing
from fit.judge import Fit, Model, Question, measure

# A context below this serves no chat; a larger one is worth a smaller batch.
USEFUL_CONTEXT = 2048
RANKS = (2, 4, 8)
NEEDS = "(compute capability 8.9 or newer)"


def judge(model: Model, question: Question) -> Fit:
    """The answer; where it does not fit, its reason has found, wanted and fix."""
    found = measure(model, question)
    if found.fits:
        return found
    return replace(found, reason=f"{found.reason}; fix: {_words(model, found)}")


def _words(model: Model, found: Fit) -> str:
    asked = found.question
    if asked.gpus is not None and asked.ranks > asked.gpus:
        return f"TENSOR_PARALLEL_SIZE={asked.gpus}, or a host with more GPUs"
    if dividing.refusal(model.shape, asked.ranks):
        return "a TENSOR_PARALLEL_SIZE that divides them, or another MODEL"
    if packing.refusal(model.shape.quantization, asked.quantization):
        other = "" if model.shape.quantization else f", or set it to {packing.AT_LOAD[0]}"
        return f"leave QUANTIZATION empty{other}"
    for change, said in _changes(asked, found):
        if measure(model, change).fits:
            return said
    return "a smaller or quantised MODEL, or a larger GPU"


def _changes(asked: Question, found: Fit) -> Iterator[tuple[Question, str]]:
    """From what costs least: requests, then precision, then money."""
    shorter = _shorter(asked, found)
    if shorter >= min(USEFUL_CONTEXT, found.context):
        yield replace(asked, context=shorter), f"MAX_MODEL_LEN={shorter} (or auto)"
    if asked.share < 0.95:
        yield replace(asked, share=0.95), "GPU_MEMORY_UTILIZATION=0.95"
    if asked.kv_dtype is None:
        yield replace(asked, kv_dtype="fp8"), f"KV_CACHE_DTYPE=fp8 {NEEDS}"
    for ranks in RANKS:
        if asked.ranks < ranks <= (asked.gpus or 0):
            yield replace(asked, ranks=ranks), f"TENSOR_PARALLEL_SIZE={ranks}"
    if asked.quantization is None:
        name = packing.AT_LOAD[0]
        packed = replace(asked, quantization=name)
        yield packed, f"QUANTIZATION={name} {NEEDS}"
        yield replace(packed, context=0), f"QUANTIZATION={name} with MAX_MODEL_LEN=auto"


def _shorter(asked: Question, found: Fit) -> int:
    """The context, in steps of 256, that so many requests may have."""
    each = max(0, found.division.kv_cache_safe) // asked.concurrency
    longest = found.cache.longest(each, found.max_context)
    return longest // 256 * 256 if longest >= 256 else longest
