"""Bytes of a model's weights, from its shape; where there are files, from their sizes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fit import packing
from fit.shape import Experts, Shape

PLAIN = 2  # bytes; vLLM loads float32 as 16 bits


@dataclass(frozen=True)
class Parameters:
    """Counts: the embedding and output matrices; the attention's linear layers, of them those for
    keys and values, and those that latent attention keeps on every rank; the dense and shared
    linear layers; the experts'; norms and routers."""

    embedding: int
    attention: int
    kv: int
    low_rank: int
    dense: int
    experts: int
    small: int

    @property
    def linear(self) -> int:
        return self.attention + self.dense + self.experts

    @property
    def total(self) -> int:
        return self.embedding + self.linear + self.small


@dataclass(frozen=True)
class Size:
    """Bytes in memory. `whole`: of them, on every rank. `kv`: in `kv_heads` parts at most.
    `measured`: by files."""

    total: int
    whole: int
    kv: int
    kv_heads: int
    measured: bool = False

    def per_rank(self, ranks: int) -> int:
        divided = self.total - self.whole - self.kv
        return -(-divided // ranks) + self.whole + -(-self.kv // min(ranks, self.kv_heads))


def count(shape: Shape) -> Parameters:
    """The parameters of all layers."""
    mlp = (3 if shape.gated else 2) * shape.hidden
    moe = shape.experts
    moe_layers = moe.layers if moe else 0
    return Parameters(
        embedding=shape.vocab * shape.hidden * (1 if shape.tied else 2),
        attention=shape.layers * _attention(shape),
        kv=0 if shape.latent else shape.layers * _kv(shape),
        low_rank=shape.layers * _low_rank(shape),
        dense=(shape.layers - moe_layers) * mlp * shape.intermediate
        + moe_layers * mlp * (moe.shared_intermediate if moe else 0),
        experts=_experts(moe, mlp),
        small=shape.layers * 2 * shape.hidden + shape.hidden + _routers(shape, moe),
    )


def _attention(shape: Shape) -> int:
    hidden, latent = shape.hidden, shape.latent
    output = shape.heads * shape.v_head_dim * hidden
    if latent is None:
        return hidden * shape.heads * shape.head_dim + _kv(shape) + output
    query = shape.heads * (latent.nope + latent.rope)
    queries = (latent.query_rank or hidden) * query
    up = latent.rank * shape.heads * (latent.nope + shape.v_head_dim)
    return _low_rank(shape) + queries + up + output


def _kv(shape: Shape) -> int:
    return shape.hidden * shape.kv_heads * (shape.head_dim + shape.v_head_dim)


def _low_rank(shape: Shape) -> int:
    """Projections down to the latent, of one layer."""
    latent = shape.latent
    if latent is None:
        return 0
    return shape.hidden * (latent.rank + latent.rope + (latent.query_rank or 0))


def _experts(moe: Experts | None, mlp: int) -> int:
    return moe.layers * moe.count * mlp * moe.intermediate if moe else 0


def _routers(shape: Shape, moe: Experts | None) -> int:
    return moe.layers * moe.count * shape.hidden if moe else 0


def from_shape(shape: Shape, quantization: str | None = None) -> Size:
    """In memory. `quantization`: asked for at load time (QUANTIZATION), where the model's own
    config names none."""
    found = count(shape)
    method, bits = packing.bits(shape.quantization, quantization)
    packed = bits / 8 if bits else PLAIN
    linear = PLAIN if method in packing.EXPERTS_ALONE else packed
    total = (
        (found.embedding + found.small) * PLAIN
        + (found.attention + found.dense) * linear
        + found.experts * packed
    )
    whole = found.small * PLAIN + found.low_rank * linear
    return Size(round(total), round(whole), round(found.kv * linear), shape.kv_heads)


def from_files(
    shape: Shape, file_bytes: int, wide_bytes: int = 0, quantization: str | None = None
) -> Size:
    """In memory, of weights that take `file_bytes` on disk, of them `wide_bytes` as float32."""
    by_shape = from_shape(shape)
    file_bytes -= _left_out(shape)
    if shape.quantization is not None:
        return _like(by_shape, file_bytes, shape)
    loaded = file_bytes - wide_bytes // 2
    method, bits = packing.bits(None, quantization)
    if bits is not None:
        found = count(shape)
        packed = found.experts if method in packing.EXPERTS_ALONE else found.linear
        loaded = round(loaded * (1 - packed / found.total * (1 - bits / 16)))
    return _like(by_shape, loaded, shape)


def _left_out(shape: Shape) -> int:
    """Bytes of the experts of layers that vLLM does not load (of their other parts it is not sure
    where the files have them)."""
    moe = shape.experts
    if moe is None or not shape.spare:
        return 0
    _, bits = packing.bits(shape.quantization, None)
    return round(shape.spare * count(shape).experts / moe.layers * (bits / 8 if bits else PLAIN))


def padding(shape: Shape, ranks: int) -> int:
    """Bytes of a rank by which some kernels round 4-bit experts up: their width to 128, the model's
    to 256 (fused_moe/oracle/mxfp4.py; on Hopper the usual ones need none)."""
    moe = shape.experts
    name, bits = packing.bits(shape.quantization, None)
    if moe is None or name != "mxfp4" or bits is None:
        return 0
    own = -(-moe.intermediate // ranks)
    wide, deep = -(-own // 128) * 128, -(-shape.hidden // 256) * 256
    matrices = 3 * moe.layers * moe.count
    return round(matrices * (wide * deep - own * shape.hidden) * bits / 8)


def _like(by_shape: Size, total: int, shape: Shape) -> Size:
    """`total` bytes, divided as the shape's are. What the shape does not tell of (an encoder for
    pictures) is on every rank."""
    if shape.pictures:
        beyond = max(0, total - by_shape.total)
        return Size(total, by_shape.whole + beyond, by_shape.kv, by_shape.kv_heads, measured=True)
    scale = total / by_shape.total
    whole, kv = round(by_shape.whole * scale), round(by_shape.kv * scale)
    return Size(total, whole, kv, by_shape.kv_heads, measured=True)
