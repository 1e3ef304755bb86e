"""A model's config.json → the numbers that decide its size. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fit import known, layers, lengths
from fit.defaults import DEFAULTS
from fit.layers import Kind

DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
# What transformers assumes where a config leaves the number out.
NO_GATE = ("gpt2", "gpt_neox", "gptj", "opt", "falcon", "bloom", "mpt", "phi", "starcoder2")
# Configs of these leave it at transformers' default, which is one matrix for input and output.
TIED = ("gemma", "gpt2", "falcon", "bloom", "mpt", "opt", "starcoder2", "cohere")


class ShapeError(Exception):
    """A config that does not tell a model's size: found, wanted, fix."""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts: `layers` of the model have one. `chosen`: for each token."""

    count: int
    chosen: int
    intermediate: int
    shared_intermediate: int
    layers: int


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek): what is cached is `rank + rope` values a token.
    `index`: size of the head that DeepSeek V3.2 chooses tokens with, 0 where there is none."""

    rank: int
    rope: int
    nope: int
    query_rank: int | None
    index: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Counts of layers, heads and elements. `kinds`: one for each layer that keeps a KV cache or
    state. `window`: tokens a sliding or chunked layer looks back. `context`: what an empty
    MAX_MODEL_LEN means, `longest`: what it may be. `spare`: layers in the files that only guess
    ahead, which vLLM leaves out. `pictures`: it takes more than text. `rough`: why the numbers are
    an estimate, where they are one."""

    kind: str  # model_type
    architecture: str
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
    longest: int
    dtype_bytes: int
    kinds: tuple[Kind, ...]
    window: int | None
    latent: Latent | None
    experts: Experts | None
    quantization: Mapping[str, Any] | None
    pooling: bool
    spare: int = 0
    pictures: bool = False
    rough: str | None = None


def read(config: Mapping[str, Any]) -> Shape:
    """The shape in `config` (of a multi-modal model: its language model's). Raises ShapeError."""
    try:
        return _read(config)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise ShapeError(
            f"MODEL: found a config.json with a value that is none ({str(error)[:100]}); wanted a"
            " language model's in Hugging Face form; fix: choose another MODEL"
        ) from error


def _read(config: Mapping[str, Any]) -> Shape:
    text = config.get("text_config") or config.get("llm_config") or config
    if not isinstance(text, Mapping):
        raise ShapeError(
            "MODEL: found a text_config that is no object in config.json; wanted the language"
            " model's config; fix: choose another MODEL"
        )
    kind = str(text.get("model_type") or config.get("model_type") or "")
    merged = {**DEFAULTS.get(kind, {}), **config, **text}
    heads = _count(merged, "num_attention_heads", "n_head", "n_heads")
    hidden = _count(merged, "hidden_size", "n_embd", "d_model")
    depth = _count(merged, "num_hidden_layers", "n_layer", "n_layers")
    head_dim = int(merged.get("head_dim") or hidden // heads)
    intermediate = int(merged.get("intermediate_size") or merged.get("n_inner") or 4 * hidden)
    length = lengths.read(merged)
    return Shape(
        kind=kind,
        architecture=_architecture(config),
        layers=depth,
        hidden=hidden,
        intermediate=intermediate,
        gated=kind not in NO_GATE,
        vocab=_count(merged, "vocab_size"),
        tied=_tied(merged, kind),
        heads=heads,
        kv_heads=_kv_heads(merged, kind, heads),
        head_dim=head_dim,
        v_head_dim=int(merged.get("v_head_dim") or head_dim),
        context=length.usual,
        longest=length.longest,
        dtype_bytes=DTYPE_BYTES.get(str(merged.get("dtype") or merged.get("torch_dtype")), 2),
        kinds=layers.kinds(merged, kind, depth),
        window=layers.window(merged),
        latent=_latent(merged),
        experts=_experts(merged, depth, intermediate),
        quantization=_quantization(config, merged),
        pooling=_pooling(config),
        spare=int(merged.get("num_nextn_predict_layers") or 0),
        pictures=text is not config,
        rough=known.rough(config, text, kind),
    )


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _count(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise ShapeError(
        f"MODEL: found no {names[0]} in the model's config.json; wanted a decoder with attention,"
        " whose memory can be told; fix: none needed where vLLM runs it"
    )


def _tied(config: Mapping[str, Any], kind: str) -> bool:
    found = config.get("tie_word_embeddings")
    return bool(found) if found is not None else kind.startswith(TIED)


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
        index=int(config.get("index_head_dim") or 0),
    )


def _experts(config: Mapping[str, Any], layers: int, intermediate: int) -> Experts | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    count = next((int(config[n]) for n in names if config.get(n)), 0)
    if count < 2:
        return None
    chosen = config.get("num_experts_per_tok") or config.get("experts_per_token") or 8
    own = int(config.get("moe_intermediate_size") or intermediate)
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    always = 1 if str(config.get("model_type", "")).startswith("llama4") else 0
    shared = shared or int(config.get("n_shared_experts") or always) * own
    dense = int(config.get("first_k_dense_replace") or 0)
    step = int(config.get("decoder_sparse_step") or config.get("interleave_moe_layer_step") or 1)
    only = config.get("mlp_only_layers")
    skipped = len(only) if isinstance(only, list) else 0
    return Experts(
        count=count,
        chosen=int(chosen),
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
