"""What one engine step takes beside weights and KV cache, at its peak in vLLM's profile run. Pure.

The profile runs max_num_batched_tokens through the model without attention, then samples for
max_num_seqs sequences (v1/worker/gpu/model_runner.py profile_run). What is largest, counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from fit.shape import Experts, Latent, Shape

GIB = 2**30
ELEMENT = 2  # bytes; vLLM computes in 16 bits
# The pictures of one step through their encoder, and what it makes of them: an order of magnitude,
# since every model has an encoder of its own.
PICTURES_BYTES = 1 * GIB
LATENT_BLOCK = 64  # tokens; of the back-ends for latent attention
LATENT_ROWS = 65536  # mla_attention.py determine_chunked_prefill_workspace_size


@dataclass(frozen=True)
class Limits:
    """Sequences and tokens of one engine step, and the tokens a request may have."""

    seqs: int
    batched_tokens: int
    context: int


def peak(shape: Shape, ranks: int, limits: Limits, logit_bytes: int) -> int:
    """Bytes on one of `ranks`."""
    tokens = limits.batched_tokens
    hidden = tokens * shape.hidden * ELEMENT
    layer = max(_mlp(shape, ranks, tokens), _attention(shape, ranks, limits))
    # With ranks, each has its part of the logits and all of them.
    logits = (
        min(limits.seqs, tokens) * shape.vocab * (logit_bytes + (2 / ranks if ranks > 1 else 0))
    )
    encoder = PICTURES_BYTES if shape.pictures else 0
    return round(max(2 * hidden + layer, hidden + logits, encoder))


def _mlp(shape: Shape, ranks: int, tokens: int) -> int:
    """Bytes of the gate and up projections together, and of their product."""
    dense = tokens * 3 * shape.intermediate // ranks * ELEMENT
    moe = shape.experts
    if moe is None:
        return dense
    return max(dense if moe.layers < shape.layers else 0, _moe(shape, moe, ranks, tokens))


def _moe(shape: Shape, moe: Experts, ranks: int, tokens: int) -> int:
    """Two workspaces over all copies of the tokens (fused_moe/experts/triton_moe.py
    workspace_shapes), the result, and the shared experts'."""
    own = moe.intermediate // ranks
    copies = max(own, shape.hidden) + max(2 * own, shape.hidden)
    shared = 3 * moe.shared_intermediate // ranks
    return tokens * (moe.chosen * copies + shape.hidden + shared) * ELEMENT


def _attention(shape: Shape, ranks: int, limits: Limits) -> int:
    heads = -(-shape.heads // ranks)
    if shape.latent is None:
        kv = 2 * max(1, shape.kv_heads // ranks) * shape.head_dim
        wide = heads * (shape.head_dim + shape.v_head_dim) + kv
        return limits.batched_tokens * wide * ELEMENT
    return _latent(shape, shape.latent, heads, limits)


def _latent(shape: Shape, latent: Latent, heads: int, limits: Limits) -> int:
    """Queries and output, and keys and values of what a chunk of prefill looks back at."""
    least = limits.seqs * LATENT_BLOCK
    rows = max(min(max(8 * limits.context, 4 * least), LATENT_ROWS), least)
    step = limits.batched_tokens * heads * (latent.nope + latent.rope + shape.v_head_dim)
    return (step + rows * heads * (latent.nope + shape.v_head_dim)) * ELEMENT
