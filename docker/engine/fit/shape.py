"""A model's config.json → the numbers that decide its size. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["full", "sliding", "chunked", "linear"]
DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
# What transformers assumes where a config leaves the number out.
NO_GATE = ("gpt2", "gpt_neox", "gptj", "opt", "falcon", "bloom", "mpt", "phi", "starcoder2")
# Their attention layers alternate without a list of them: (every n-th layer is full, from n-1 on).
PATTERNS = {
    "gemma2": 2,
    "gemma3_text": 6,
    "gemma3": 6,
    "gpt_oss": 2,
    "cohere2": 4,
    "llama4_text": 4,
}
# Layers of these are not all attention; what they keep per sequence is not told by these numbers.
RECURRENT = (
    "mamba", "jamba", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "qwen3_next",
    "zamba2", "rwkv", "lfm2", "minimax", "kimi_linear", "plamo2",
)  # fmt: skip


class ShapeError(Exception):
    """A config that does not tell a model's size: found, wanted, fix."""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts: `layers` of the model have one."""

    count: int
    intermediate: int
    shared_intermediate: int
    layers: int


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek): what is cached is `rank + rope` values a token."""

    rank: int
    rope: int
    nope: int
    query_rank: int | None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Counts of layers, heads and elements. `kinds`: one for each layer that keeps a KV cache or
    state. `window`: tokens a sliding or chunked layer looks back. `rough`: why the numbers are an
    estimate, where they are one."""

    kind: str  # model_type
    layers: int
    hidden: int
    intermediate: int
    gated: bool
    vocab: int
    tied: bool
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    context: int
    dtype_bytes: int
    kinds: tuple[Kind, ...]
    window: int | None
    latent: Latent | None
    experts: Experts | None
    quantization: Mapping[str, Any] | None
    pooling: bool
    rough: str | None = None


def read(config: Mapping[str, Any]) -> Shape:
    """The shape in `config` (of a multi-modal model: its language model's). Raises ShapeError."""
    text = config.get("text_config") or config.get("llm_config") or config
    if not isinstance(text, Mapping):
        raise ShapeError("found a text_config that is no object in config.json")
    merged = {**config, **text}
    heads = _count(merged, "num_attention_heads", "n_head", "n_heads")
    hidden = _count(merged, "hidden_size", "n_embd", "d_model")
    layers = _count(merged, "num_hidden_layers", "n_layer", "n_layers")
    kind = str(text.get("model_type") or config.get("model_type") or "")
    latent = _latent(merged)
    head_dim = int(merged.get("head_dim") or hidden // heads)
    intermediate = int(merged.get("intermediate_size") or merged.get("n_inner") or 4 * hidden)
    return Shape(
        kind=kind,
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        gated=kind not in NO_GATE,
        vocab=_count(merged, "vocab_size"),
        tied=_tied(merged, kind),
        heads=heads,
        kv_heads=_kv_heads(merged, kind, heads),
        head_dim=head_dim,
        v_head_dim=int(merged.get("v_head_dim") or head_dim),
        context=_context(merged),
        dtype_bytes=DTYPE_BYTES.get(str(merged.get("dtype") or merged.get("torch_dtype")), 2),
        kinds=_kinds(merged, kind, layers),
        window=_window(merged),
        latent=latent,
        experts=_experts(merged, layers, intermediate),
        quantization=_quantization(config, merged),
        pooling=_pooling(config),
        rough=_rough(config, text, kind),
    )


def _count(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise ShapeError(
        f"found no {names[0]} in the model's config.json; wanted a language model in Hugging Face"
        " form; fix: choose another MODEL"
    )


def _tied(config: Mapping[str, Any], kind: str) -> bool:
    # transformers' default is tied; Gemma's configs leave it at that.
    found = config.get("tie_word_embeddings")
    return bool(found) if found is not None else kind.startswith("gemma") or kind == "gpt2"


def _kv_heads(config: Mapping[str, Any], kind: str, heads: int) -> int:
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1  # Falcon 7B, GPT-BigCode
    found = config.get("num_key_value_heads") or config.get("num_kv_heads")
    return int(found) if found else heads


def _latent(config: Mapping[str, Any]) -> Latent | None:
    rank = config.get("kv_lora_rank")
    if not rank:
        return None
    query = config.get("q_lora_rank")
    return Latent(
        rank=int(rank),
        rope=int(config.get("qk_rope_head_dim") or 64),
        nope=int(config.get("qk_nope_head_dim") or 128),
        query_rank=int(query) if query else None,
    )


def _context(config: Mapping[str, Any]) -> int:
    """As vLLM derives it: the positions, times the factor of a rope scaling that stretches them
    (not llama3's and longrope's, whose positions are the stretched ones already)."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
    positions = [int(config[n]) for n in names if isinstance(config.get(n), int)]
    length = min(positions) if positions else 2048
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        return length
    kind = scaling.get("rope_type") or scaling.get("type")
    if kind in (None, "default", "llama3", "longrope", "su", "mrope"):
        return length
    original = scaling.get("original_max_position_embeddings")
    base = int(original) if kind == "yarn" and original else length
    return int(base * float(scaling.get("factor") or 1))


def _window(config: Mapping[str, Any]) -> int | None:
    if config.get("use_sliding_window") is False:
        return None
    found = config.get("sliding_window") or config.get("attention_chunk_size")
    return int(found) if isinstance(found, int) else None


def _kinds(config: Mapping[str, Any], kind: str, layers: int) -> tuple[Kind, ...]:
    listed = config.get("layer_types")
    if isinstance(listed, list) and listed:
        return tuple(_named(str(one)) for one in listed[:layers])
    full: Kind = "full"
    if _window(config) is None:
        return (full,) * layers
    local: Kind = "chunked" if config.get("attention_chunk_size") else "sliding"
    every = int(config.get("sliding_window_pattern") or PATTERNS.get(kind, 0))
    if not every:
        return (local,) * layers
    return tuple(full if (at + 1) % every == 0 else local for at in range(layers))


def _named(name: str) -> Kind:
    if "sliding" in name:
        return "sliding"
    if "chunked" in name:
        return "chunked"
    return "full" if "attention" in name and "linear" not in name else "linear"


def _experts(config: Mapping[str, Any], layers: int, intermediate: int) -> Experts | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    count = next((int(config[n]) for n in names if config.get(n)), 0)
    if count < 2:
        return None
    own = int(config.get("moe_intermediate_size") or intermediate)
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    shared = shared or int(config.get("n_shared_experts") or 0) * own
    dense = int(config.get("first_k_dense_replace") or 0)
    step = int(config.get("decoder_sparse_step") or config.get("interleave_moe_layer_step") or 1)
    only = config.get("mlp_only_layers")
    skipped = len(only) if isinstance(only, list) else 0
    return Experts(
        count=count,
        intermediate=own,
        shared_intermediate=shared,
        layers=max(0, (layers - dense) // step - skipped),
    )


def _quantization(config: Mapping[str, Any], merged: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for place in (config, merged):
        found = place.get("quantization_config") or place.get("compression_config")
        if isinstance(found, Mapping):
            return found
    return None


def _pooling(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures") or []
    causal = ("CausalLM", "ConditionalGeneration", "LMHeadModel")
    return bool(names) and not any(str(name).endswith(causal) for name in names)


def _rough(config: Mapping[str, Any], text: Mapping[str, Any], kind: str) -> str | None:
    if any(kind.startswith(name) for name in RECURRENT):
        return f"{kind} has layers whose state is not counted here"
    if config.get("is_encoder_decoder"):
        return "an encoder-decoder's cross attention is not counted here"
    if text is not config:
        return "the parts for pictures or sound are counted by their files only"
    return None
