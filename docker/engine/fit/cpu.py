"""The CPU engine: weights, a KV cache of a fixed size and vLLM itself, in the host's memory. Pure
but for `memory`."""

from __future__ import annotations

import os
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Room:
    """Bytes of memory, and of them for the KV cache."""

    total: int
    kv_cache: int


def judge(model: Model, room: Room, context: int | None, concurrency: int = 1) -> dict[str, object]:
    """The answer as JSON, with the keys that mean something without a GPU."""
    shape, weights = model.shape, model.size(None).total
    cache = kvcache.of(shape, ranks=1, dtype=None, in_flight=BATCHED_TOKENS)
    longest = cache.longest(room.kv_cache, shape.longest)
    wanted = shape.context if context is None else context or longest
    many = int(cache.concurrency(room.kv_cache, wanted)) if wanted else 0
    needed = weights + room.kv_cache + OVERHEAD_BYTES
    problem = _memory(model, room, needed) or _cache(model, room, (wanted, longest, many))
    if not problem and many < concurrency:
        problem = f"found room for {many} requests of {wanted:,} tokens; wanted {concurrency}" + (
            "; fix: a shorter MAX_MODEL_LEN"
        )
    return {
        "model": model.name,
        "fits": problem is None,
        "reason": problem or f"{gib(needed)} of {gib(room.total)} of memory",
        "estimate": shape.rough,
        "weights_bytes": weights,
        "weights_from": "files" if model.file_bytes is not None else "config",
        "kv_bytes_per_token": cache.bytes_per_token,
        "kv_cache_tokens": cache.tokens(room.kv_cache, wanted) if wanted else 0,
        "context": wanted,
        "max_context": longest,
        "max_concurrency": many,
        "gpu": None,
        "plans": [],
    }


def _memory(model: Model, room: Room, needed: int) -> str | None:
    if needed <= room.total:
        return None
    return (
        f"found {gib(room.total)} of memory; wanted {gib(needed)} for {model.name} on the CPU;"
        " fix: a smaller MODEL, or a host with a GPU"
    )


def _cache(model: Model, room: Room, lengths: tuple[int, int, int]) -> str | None:
    """`lengths`: the context wanted, the longest that fits, and how many of the wanted one do."""
    wanted, longest, many = lengths
    if wanted > model.shape.longest:
        return (
            f"found a context of {wanted:,} for {model.name}; wanted at most"
            f" {model.shape.longest:,}, for which it is made; fix: MAX_MODEL_LEN={longest}"
        )
    if many >= 1:
        return None
    return (
        f"found a KV cache of {room.kv_cache / GIB:g} GiB, which is what the CPU engine gets;"
        f" wanted room for one request of {wanted:,} tokens with {model.name};"
        f" fix: MAX_MODEL_LEN={longest}"
    )
