"""The stack's settings → the question of one GPU. Pure."""

from __future__ import annotations

from typing import Protocol

from fit.gpus import Gpu
from fit.judge import Question

# As the launcher's own (options/values.py), which knows this package and not the other way round.
SUFFIXES = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
}  # fmt: skip


class Settings(Protocol):
    """What the launcher's settings tell here, in vLLM's spelling (8192, 8k, 8K)."""

    @property
    def tensor_parallel_size(self) -> int: ...
    @property
    def gpu_memory_utilization(self) -> float: ...
    @property
    def max_model_len(self) -> str | None: ...
    @property
    def max_num_seqs(self) -> int | None: ...
    @property
    def max_num_batched_tokens(self) -> str | None: ...
    @property
    def kv_cache_dtype(self) -> str | None: ...
    @property
    def quantization(self) -> str | None: ...


def context(settings: Settings) -> int | None:
    """MAX_MODEL_LEN in tokens: None is the model's own, 0 the largest that fits."""
    return 0 if settings.max_model_len == "auto" else tokens(settings.max_model_len)


def tokens(text: str | None) -> int | None:
    """8192, 8k (8000), 8K (8192), 25.6k → a number."""
    if text is None:
        return None
    factor = SUFFIXES.get(text[-1])
    return int(float(text[:-1]) * factor) if factor else int(text)


def question(
    settings: Settings, card: Gpu, concurrency: int = 1, vllm: str | None = None
) -> Question:
    """What these settings ask of `card`. `vllm`: its version, None is the newest known."""
    return Question(
        gpu=card.name,
        total=card.total,
        gpus=card.count,
        ranks=settings.tensor_parallel_size,
        share=settings.gpu_memory_utilization,
        context=context(settings),
        concurrency=concurrency,
        kv_dtype=settings.kv_cache_dtype,
        quantization=settings.quantization,
        seqs=settings.max_num_seqs,
        batched_tokens=tokens(settings.max_num_batched_tokens),
        vllm=vllm,
    )
