"""The CPU engine: weights, a KV cache of a fixed size and vLLM itself, in the host's memory. Pure
but for `memory`."""

from __future__ import annotations

import os
from pathlib import Path

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


def judge(model: Model, total: int, kv_bytes: int, context: int | None) -> dict[str, object]:
    """The answer as JSON, with the keys that mean something without a GPU. `total`: bytes of
    memory; `kv_bytes`: what the KV cache gets of them."""
    weights = model.bytes(None)
    cache = kvcache.of(model.shape, ranks=1, dtype=None, batched_tokens=BATCHED_TOKENS)
    longest = cache.longest(kv_bytes, model.shape.context)
    wanted = model.shape.context if context is None else context or longest
    needed = weights + kv_bytes + OVERHEAD_BYTES
    many = int(cache.concurrency(kv_bytes, wanted)) if wanted else 0
    fits = needed <= total and many >= 1
    return {
        "model": model.name,
        "fits": fits,
        "reason": _reason(model, (needed, total), kv_bytes, longest, fits=fits),
        "estimate": model.shape.rough,
        "weights_bytes": weights,
        "kv_bytes_per_token": cache.bytes_per_token,
        "kv_cache_tokens": cache.tokens(kv_bytes, wanted) if wanted else 0,
        "context": wanted,
        "max_context": longest,
        "max_concurrency": many,
        "gpu": None,
        "plans": [],
    }


def _reason(
    model: Model, memory: tuple[int, int], kv_bytes: int, longest: int, *, fits: bool
) -> str:
    needed, total = memory
    if fits:
        return f"{gib(needed)} of {gib(total)} of memory"
    if needed > total:
        return (
            f"found {gib(total)} of memory; wanted {gib(needed)} for {model.name} on the CPU;"
            " fix: a smaller MODEL, or a host with a GPU"
        )
    return (
        f"found a KV cache of {kv_bytes / GIB:g} GiB, which is what the CPU engine gets; wanted"
        f" room for one request of {model.name} at its whole context; fix: MAX_MODEL_LEN={longest}"
    )
