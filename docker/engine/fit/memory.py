"""What a GPU's memory goes to, as vLLM's own profile at its start divides it. Pure.

    total x GPU_MEMORY_UTILIZATION = weights + activations + the rest (+ graphs) + KV cache

Beyond weights and KV cache the sizes are a model of what was read (fit.step, fit.release) and
measured (H200, vLLM 0.24, one and two GPUs, docs/engine.md). `reserve` is what must stay free for
an answer to be safe; it is no part of the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

from fit import known, release, step, weights
from fit.release import Release
from fit.shape import Shape
from fit.step import Limits
from fit.weights import Size

MIB = 2**20
GIB = 2**30
# The driver keeps this much of what nvidia-smi calls total (H200: 615 MiB, H100: 550, L40S: 480).
DRIVER_BYTES = 600 * MIB
CONTEXT_BYTES = 300 * MIB  # kernels and workspaces, beyond what the CUDA context itself takes
RANKS_BYTES = 350 * MIB  # NCCL and all-reduce buffers, where ranks talk to each other
LARGEST_CAPTURE = 512
SAFE_SHARE = 0.01  # of the budget: fragmentation, other builds of the kernels
SAFE_WEIGHTS = 0.02  # padding and layouts that kernels want
SAFE_ACTIVATIONS = 0.25  # other kernels than those that were read
SAFE_ROUGH = 0.03  # of the budget, where the numbers are an estimate
SAFE_GUESS = 0.10  # of weights of an architecture that isn't known, where there are no files


@dataclass(frozen=True)
class Division:
    """Bytes of one GPU. `takes_graphs`: this vLLM takes them out of the KV cache."""

    budget: int
    weights: int
    activations: int
    other: int
    graphs: int
    reserve: int
    takes_graphs: bool

    @property
    def kv_cache(self) -> int:
        """What vLLM gives the KV cache; negative where even the rest does not fit."""
        used = self.weights + self.activations + self.other
        return self.budget - used - (self.graphs if self.takes_graphs else 0)

    @property
    def kv_cache_safe(self) -> int:
        """What it gives at least, and any version would."""
        used = self.weights + self.activations + self.other + self.graphs + self.reserve
        return self.budget - used


def defaults(total: int, name: str = "") -> tuple[int, int]:
    """vLLM's own limits of a step, sequences and tokens, by the GPU's memory (engine/arg_utils.py
    get_batch_defaults, the API server's)."""
    if total >= 160 * GIB:
        return 1024, 16384
    if total >= 70 * GIB and "a100" not in name.lower():
        return 1024, 8192
    return 256, 2048


def divide(
    shape: Shape, size: Size, *, card: tuple[int, float], ranks: int, limits: Limits, vllm: Release
) -> Division:
    """One GPU among `ranks`. `card`: its bytes (nvidia-smi's total), and the share to be used."""
    total, share = card
    budget = round((total - DRIVER_BYTES) * share)
    own = size.per_rank(ranks)
    state = round(limits.seqs * shape.vocab * vllm.state)
    return Division(
        budget=budget,
        weights=own,
        activations=step.peak(shape, ranks, limits, vllm.logits),
        other=CONTEXT_BYTES + (RANKS_BYTES if ranks > 1 else 0) + state,
        graphs=_graphs(shape, ranks, limits),
        reserve=_reserve(shape, budget, (own, size.measured), _more(shape, ranks, limits, vllm)),
        takes_graphs=vllm.graphs,
    )


def _more(shape: Shape, ranks: int, limits: Limits, vllm: Release) -> int:
    """Bytes by which the most careful version's step is larger, a part of it, and what kernels of
    other GPUs round up."""
    largest = step.peak(shape, ranks, limits, release.NEWER.logits)
    state = limits.seqs * shape.vocab * (release.NEWER.state - vllm.state)
    own = step.peak(shape, ranks, limits, vllm.logits)
    padding = weights.padding(shape, ranks)
    return round(largest - own + state + padding + SAFE_ACTIVATIONS * largest)


def _reserve(shape: Shape, budget: int, own: tuple[int, bool], more: int) -> int:
    """`own`: bytes of weights, and whether files tell them. `more`: see there."""
    size, measured = own
    guess = 0 if measured else _unseen(shape, size)
    rough = SAFE_ROUGH * budget + guess if shape.rough else 0
    pictures = 2 * step.PICTURES_BYTES if shape.pictures else 0
    return round(SAFE_SHARE * budget + SAFE_WEIGHTS * size + rough + pictures + more) + 128 * MIB


def _unseen(shape: Shape, weights: int) -> float:
    """Bytes of weights that a config alone may not have told: of an architecture that was not held
    against known sizes, or an encoder for pictures."""
    if shape.kind not in known.KNOWN:
        return SAFE_GUESS * weights
    return 2 * step.PICTURES_BYTES if shape.pictures else 0


def _graphs(shape: Shape, ranks: int, limits: Limits) -> int:
    """The CUDA graphs' pool (measured: 0.98 GiB for 32 layers of 4096, 0.72 on each of two GPUs,
    0.39 for 30 layers of 576)."""
    largest = min(2 * limits.seqs, LARGEST_CAPTURE, limits.batched_tokens)
    sizes = largest / LARGEST_CAPTURE
    depth = shape.layers / 32
    return round((0.15 + sizes * depth * (0.25 + 0.58 * shape.hidden / 4096 / ranks)) * GIB)
