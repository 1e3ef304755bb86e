"""The KV cache: bytes a token, and how many tokens a number of bytes holds. Pure.

vLLM puts layers of one kind into groups of equal size, which draw blocks from one pool; a request
of N tokens takes blocks from each group (v1/core/kv_cache_planning.py, kv_cache_interface.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fit import packing
from fit.shape import Shape

BLOCK = (
    16  # tokens; the attention back-ends' usual size, and larger ones differ by a block a request
)
INDEX_SCALE = 4  # bytes, beside the 8-bit values of a token that DeepSeek V3.2 chooses with
CACHE_BYTES = {"fp8": 1, "int8": 1, "nvfp4": 0.5625, "int4": 0.5625, "float32": 4}


@dataclass(frozen=True)
class Cache:
    """One rank's cache. `layer_bytes`: of one token in one layer. `group_layers`: layers of a
    group, padding included. `full`, `local`: groups that keep all tokens, or the last `window`."""

    layer_bytes: float
    group_layers: int
    full: int
    local: int
    window: int
    in_flight: int

    @property
    def block_bytes(self) -> int:
        return round(self.layer_bytes * self.group_layers * BLOCK)

    @property
    def bytes_per_token(self) -> int:
        """Of one more token of a long context: the groups that keep all of them."""
        groups = self.full or self.local
        return round(self.layer_bytes * self.group_layers * groups)

    def blocks(self, context: int) -> int:
        """Blocks that one request of `context` tokens may need at once."""
        full = self.full * _ceil(context, BLOCK)
        local = min(self.window - 1 + self.in_flight, context)
        return full + self.local * (_ceil(local, BLOCK) + 1) if self.local else full

    def concurrency(self, budget: int, context: int) -> float:
        """Requests of `context` tokens that `budget` bytes hold."""
        if not self.block_bytes:
            return 0.0
        return (budget // self.block_bytes) / self.blocks(context)

    def tokens(self, budget: int, context: int) -> int:
        """As vLLM reports it: that concurrency times the context."""
        return int(self.concurrency(budget, context) * context)

    def longest(self, budget: int, limit: int) -> int:
        """The longest context up to `limit` of which one request fits; 0 where none does."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.concurrency(budget, middle) >= 1:
                low = middle
            else:
                high = middle - 1
        return low


def of(shape: Shape, *, ranks: int, dtype: str | None, in_flight: int) -> Cache:
    """The cache of one of `ranks` tensor-parallel ranks. `dtype`: KV_CACHE_DTYPE. `in_flight`:
    tokens that are scheduled and not yet settled."""
    dtype = packing.kv_dtype(shape.quantization) if dtype in (None, "auto") else dtype
    kinds = Counter(kind for kind in shape.kinds if kind != "linear")
    local = kinds["sliding"] + kinds["chunked"] if shape.window else 0
    full = kinds.total() - local
    size = _group_size([n for n in (full, local) if n])
    return Cache(
        layer_bytes=_layer_bytes(shape, ranks, dtype),
        group_layers=size,
        full=_ceil(full, size) if full else 0,
        local=_ceil(local, size) if local else 0,
        window=shape.window or 0,
        in_flight=in_flight,
    )


def _layer_bytes(shape: Shape, ranks: int, dtype: str | None) -> float:
    """Latent attention has one head, which every rank keeps in full."""
    element = cache_bytes(dtype, 2)
    if shape.latent:
        index = shape.latent.index + INDEX_SCALE if shape.latent.index else 0
        if dtype and "ds_mla" in dtype:
            return (656.0 if dtype.startswith("fp8") else 352.0) + index
        return (shape.latent.rank + shape.latent.rope) * element + index
    heads = max(1, shape.kv_heads // ranks)
    scales = 8 * heads if dtype and "per_token_head" in dtype else 0  # a float32 for K and for V
    return heads * (shape.head_dim + shape.v_head_dim) * element + scales


def cache_bytes(dtype: str | None, default: float) -> float:
    """Bytes of one element."""
    named = (dtype or "auto").lower()
    return next((size for name, size in CACHE_BYTES.items() if named.startswith(name)), default)


def _group_size(counts: list[int]) -> int:
    """As vLLM 0.33 has it: the rarer kind's number, or the other's where that is hardly more."""
    if not counts:
        return 0
    low, high = min(counts), max(counts)
    return high if high < low * 1.5 else low


def _ceil(value: int, by: int) -> int:
    return -(-value // by)
