"""Bytes of a model's weights, from its shape; where there are files, from their sizes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fit.shape import Experts, Shape

# Bits a weight takes with its scales and zero points: 4 bits in groups of 128 with a 16-bit scale
# and a 4-bit zero point; MXFP4: blocks of 32 with an 8-bit scale; FP8: scales are negligible.
BITS = {
    "awq": 4.16, "gptq": 4.16, "awq_marlin": 4.16, "gptq_marlin": 4.16, "auto-round": 4.16,
    "mxfp4": 4.25, "nvfp4": 4.5, "modelopt_fp4": 4.5, "bitsandbytes": 4.5, "hqq": 4.5,
    "fp8": 8.03, "fbgemm_fp8": 8.03, "modelopt": 8.03, "experts_int8": 8.03, "quark": 8.03,
}  # fmt: skip


@dataclass(frozen=True)
class Parameters:
    """Counts: the embedding and output matrices; the attention's linear layers; the dense and
    shared linear layers; the experts'; norms and routers."""

    embedding: int
    attention: int
    dense: int
    experts: int
    small: int

    @property
    def total(self) -> int:
        return self.embedding + self.attention + self.dense + self.experts + self.small


def count(shape: Shape) -> Parameters:
    """The parameters of all layers."""
    mlp = (3 if shape.gated else 2) * shape.hidden
    moe = shape.experts
    moe_layers = moe.layers if moe else 0
    return Parameters(
        embedding=shape.vocab * shape.hidden * (1 if shape.tied else 2),
        attention=shape.layers * _attention(shape),
        dense=(shape.layers - moe_layers) * mlp * shape.intermediate
        + moe_layers * mlp * (moe.shared_intermediate if moe else 0),
        experts=_experts(shape, moe, mlp),
        small=shape.layers * 2 * shape.hidden + shape.hidden + _routers(shape, moe),
    )


def _attention(shape: Shape) -> int:
    hidden = shape.hidden
    if shape.latent is None:
        query = shape.heads * shape.head_dim
        kv = shape.kv_heads * (shape.head_dim + shape.v_head_dim)
        return hidden * (query + kv) + shape.heads * shape.v_head_dim * hidden
    latent = shape.latent
    query = shape.heads * (latent.nope + latent.rope)
    rank = latent.query_rank
    queries = hidden * rank + rank * query if rank else hidden * query
    down = hidden * (latent.rank + latent.rope)
    up = latent.rank * shape.heads * (latent.nope + shape.v_head_dim)
    return queries + down + up + shape.heads * shape.v_head_dim * hidden


def _experts(shape: Shape, moe: Experts | None, mlp: int) -> int:
    return moe.layers * moe.count * mlp * moe.intermediate if moe else 0


def _routers(shape: Shape, moe: Experts | None) -> int:
    return moe.layers * moe.count * shape.hidden if moe else 0


def from_shape(shape: Shape, quantization: str | None = None) -> int:
    """Bytes in memory. `quantization`: asked for at load time (QUANTIZATION), where the model's own
    config names none."""
    found = count(shape)
    plain = 2 if shape.dtype_bytes == 4 else shape.dtype_bytes  # vLLM loads float32 as 16 bits
    method, bits = _method(shape.quantization, quantization)
    packed = bits / 8 if bits else plain
    linear = plain if method == "mxfp4" else packed  # gpt-oss packs its experts alone
    return round(
        (found.embedding + found.small) * plain
        + (found.attention + found.dense) * linear
        + found.experts * packed
    )


def from_files(shape: Shape, file_bytes: int, quantization: str | None = None) -> int:
    """Bytes in memory of weights that take `file_bytes` on disk."""
    if shape.quantization is not None:
        return file_bytes
    loaded = file_bytes // 2 if shape.dtype_bytes == 4 else file_bytes
    _, bits = _method(None, quantization)
    if bits is None:
        return loaded
    found = count(shape)
    linear = found.attention + found.dense + found.experts
    return round(loaded * (1 - linear / found.total * (1 - bits / 16)))


def _method(config: Mapping[str, Any] | None, asked: str | None) -> tuple[str, float | None]:
    """The method and its bits a weight; None where nothing is quantised."""
    if config is None:
        name = (asked or "").lower().replace("-", "_")
        return name, BITS.get(name) or BITS.get(name.replace("_", "-"))
    name = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    if name == "compressed-tensors":
        return name, _compressed(config)
    bits = config.get("bits") or config.get("w_bit")
    if isinstance(bits, int):
        return name, bits + (0.16 if bits <= 4 else 0.14)
    if name == "bitsandbytes" and config.get("load_in_8bit"):
        return name, 8.03
    return name, BITS.get(name, 16.0)


def _compressed(config: Mapping[str, Any]) -> float:
    groups = config.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and isinstance(weights.get("num_bits"), int):
            bits = int(weights["num_bits"])
            return bits + (0.16 if bits <= 4 else 0.03)
    return 16.0
