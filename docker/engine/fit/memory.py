"""What a GPU's memory goes to, as vLLM's own profile at its start divides it. Pure.

    total x GPU_MEMORY_UTILIZATION = weights + activations + the rest + KV cache

Beyond weights and KV cache the sizes are a model of what was measured (H200, vLLM 0.24, one and two
GPUs, docs/engine.md): KV tokens come out within 1 % there. `reserve` is what must stay free for an
answer to be safe; it is no part of the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

from fit.shape import Shape

MIB = 2**20
GIB = 2**30
# The driver keeps this much of what nvidia-smi calls total (H200: 615 MiB, H100: 550, L40S: 480).
DRIVER_BYTES = 600 * MIB
CONTEXT_BYTES = 300 * MIB  # CUDA context, kernels and workspaces
RANKS_BYTES = 350 * MIB  # NCCL and all-reduce buffers, where ranks talk to each other
LARGEST_CAPTURE = 512
SAFE_SHARE = 0.01  # of the budget: fragmentation, other builds of the kernels


@dataclass(frozen=True)
class Limits:
    """Sequences and tokens of one engine step."""

    seqs: int
    batched_tokens: int


@dataclass(frozen=True)
class Division:
    """Bytes of one GPU."""

    budget: int
    weights: int
    activations: int
    other: int
    graphs: int
    reserve: int

    @property
    def kv_cache(self) -> int:
        """What vLLM gives the KV cache; negative where even the rest does not fit."""
        return self.budget - self.weights - self.activations - self.other

    @property
    def kv_cache_safe(self) -> int:
        """What it gives at least: newer versions take the graphs out of it, and a margin."""
        return self.kv_cache - self.graphs - self.reserve


def defaults(total: int, name: str = "") -> Limits:
    """vLLM's own limits of a step by the GPU's memory (engine/arg_utils.py, the API server's)."""
    if total >= 160 * GIB:
        return Limits(1024, 16384)
    if total >= 70 * GIB and "a100" not in name.lower():
        return Limits(1024, 8192)
    return Limits(256, 2048)


def divide(
    shape: Shape, weights: int, *, total: int, share: float, ranks: int, limits: Limits
) -> Division:
    """One GPU of `total` bytes (nvidia-smi's) among `ranks` that share `weights`."""
    budget = round((total - DRIVER_BYTES) * share)
    own = _per_rank(shape, weights, ranks)
    return Division(
        budget=budget,
        weights=own,
        activations=_activations(shape, ranks, limits),
        other=CONTEXT_BYTES + (RANKS_BYTES if ranks > 1 else 0),
        graphs=_graphs(shape, limits),
        reserve=round(SAFE_SHARE * budget + 0.02 * own) + 128 * MIB,
    )


def _per_rank(shape: Shape, weights: int, ranks: int) -> int:
    """Linear layers and embeddings are divided; norms, routers and a few heads are not."""
    replicated = shape.layers * 4 * shape.hidden * 2 if ranks > 1 else 0
    return -(-weights // ranks) + replicated


def _activations(shape: Shape, ranks: int, limits: Limits) -> int:
    """The peak of the profile run: the widest layer over all tokens, or the logits of all
    sequences (their float32 copy and the 16-bit one)."""
    tokens = limits.batched_tokens
    stream = 2 * tokens * shape.hidden * 2
    wide = max(_mlp(shape, tokens), tokens * _attention_width(shape)) * 2 // ranks
    logits = min(limits.seqs, tokens) * shape.vocab * 6
    return max(stream + wide, logits)


def _mlp(shape: Shape, tokens: int) -> int:
    """Elements: the gate and up projections together, and their product."""
    dense = tokens * 3 * shape.intermediate
    if shape.experts is None:
        return dense
    # The routed copies of a token, some 8 of them, worked on in chunks by the fused kernel.
    routed = min(tokens, 8192) * 8 * (3 * shape.experts.intermediate + shape.hidden)
    shared = tokens * 3 * shape.experts.shared_intermediate
    return max(dense if shape.experts.layers < shape.layers else 0, routed + shared)


def _attention_width(shape: Shape) -> int:
    query = shape.heads * (shape.head_dim + shape.v_head_dim)
    if shape.latent is None:
        return query + 2 * shape.kv_heads * shape.head_dim
    # Prefill works on keys and values of all heads.
    return query + shape.heads * (2 * shape.latent.nope + shape.latent.rope + shape.v_head_dim)


def _graphs(shape: Shape, limits: Limits) -> int:
    """The CUDA graphs' pool (measured: 0.98 GiB for 32 layers of 4096, 0.39 for 30 of 576)."""
    largest = min(2 * limits.seqs, LARGEST_CAPTURE, limits.batched_tokens)
    sizes = largest / LARGEST_CAPTURE
    depth = shape.layers / 32
    return round((0.15 + sizes * depth * (0.25 + 0.58 * shape.hidden / 4096)) * GIB)
