"""The CPU engine: weights, a KV cache of a fixed size and vLLM itself, in the host's memory. Pure
but for `memory`."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.argv import CPU_KV_CACHE_BYTES

from fit import kvcache
from fit.judge import Model, gib
from fit.memory import GIB, MIB

OVERHEAD_BYTES = 1500 * MIB  # as the launcher's machine check has it
BATCHED_TOKENS = 2048


def memory(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes this host or container may use."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        text = limit.read_text(encoding="ascii").strip()
    except OSError:
        return host
    return min(host, int(text)) if text.isdecimal() else host


def judge(model: Model, total: int, context: int | None) -> dict[str, object]:
    """The answer as JSON, with the keys that mean something without a GPU."""
    weights = model.bytes(None)
    cache = kvcache.of(model.shape, ranks=1, dtype=None, batched_tokens=BATCHED_TOKENS)
    longest = cache.longest(CPU_KV_CACHE_BYTES, model.shape.context)
    wanted = model.shape.context if context is None else context or longest
    needed = weights + CPU_KV_CACHE_BYTES + OVERHEAD_BYTES
    many = int(cache.concurrency(CPU_KV_CACHE_BYTES, wanted)) if wanted else 0
    fits = needed <= total and many >= 1
    return {
        "model": model.name,
        "fits": fits,
        "reason": _reason(model, fits=fits, needed=needed, total=total, longest=longest),
        "estimate": model.shape.rough,
        "weights_bytes": weights,
        "kv_bytes_per_token": cache.bytes_per_token,
        "kv_cache_tokens": cache.tokens(CPU_KV_CACHE_BYTES, wanted) if wanted else 0,
        "context": wanted,
        "max_context": longest,
        "max_concurrency": many,
        "gpu": None,
        "plans": [],
    }


def _reason(model: Model, *, fits: bool, needed: int, total: int, longest: int) -> str:
    if fits:
        return f"{gib(needed)} of {gib(total)} of memory"
    if needed > total:
        return (
            f"found {gib(total)} of memory; wanted {gib(needed)} for {model.name} on the CPU;"
            " fix: a smaller MODEL, or a host with a GPU"
        )
    return (
        f"found a KV cache of {CPU_KV_CACHE_BYTES / GIB:g} GiB, which is what the CPU engine gets;"
        f" wanted room for one request of {model.name}; fix: MAX_MODEL_LEN={longest}"
    )
