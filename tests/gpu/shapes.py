"""Models of well-known shapes with dummy weights: the arithmetic, the memory and the KV cache are
those of the real ones, the text is noise. For `--load-format dummy`."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "generation_config.json",
             "chat_template.jinja", "special_tokens_map.json")  # fmt: skip
VOCABULARY = 49152  # of the tokenizer that is copied; the shapes keep it unless they say otherwise


def _llama(layers: int, hidden: int, inner: int, heads: int, kv_heads: int) -> dict[str, Any]:
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers,
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": hidden // heads, "hidden_act": "silu",
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    }  # fmt: skip


def _as(kind: str, architecture: str, base: Mapping[str, Any], **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {**base, "model_type": kind, "architectures": [architecture], **changes}


LLAMA_8B = _llama(32, 4096, 14336, 32, 8)
LLAMA_70B = _llama(80, 8192, 28672, 64, 8)
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}

SHAPES: Mapping[str, dict[str, Any]] = {
    # What facts were measured with before: a context of 8,192.
    "llama-8b": LLAMA_8B | {"max_position_embeddings": 8192},
    "llama-8b-long": LLAMA_8B,
    "llama-70b-fp8": LLAMA_70B | {"quantization_config": FP8},
    "llama-70b": LLAMA_70B,
    "qwen2.5-7b": _as(
        "qwen2", "Qwen2ForCausalLM", _llama(28, 3584, 18944, 28, 4),
        max_position_embeddings=32768, use_sliding_window=False, max_window_layers=28,
    ),
    "qwen2.5-7b-awq": _as(
        "qwen2", "Qwen2ForCausalLM", _llama(28, 3584, 18944, 28, 4), torch_dtype="float16",
        max_position_embeddings=32768, use_sliding_window=False, quantization_config=AWQ,
    ),
    "qwen3-0.6b-tied-big-vocabulary": _as(
        "qwen3", "Qwen3ForCausalLM", _llama(28, 1024, 3072, 16, 8), head_dim=128,
        tie_word_embeddings=True, vocab_size=151936, max_position_embeddings=40960,
    ),
    "qwen3-30b-a3b": _as(
        "qwen3_moe", "Qwen3MoeForCausalLM", _llama(48, 2048, 6144, 32, 4), head_dim=128,
        num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1,
        norm_topk_prob=True, mlp_only_layers=[], max_position_embeddings=40960,
    ),
    "mixtral-8x7b": _as(
        "mixtral", "MixtralForCausalLM", _llama(32, 4096, 14336, 32, 8), num_local_experts=8,
        num_experts_per_tok=2, sliding_window=None, max_position_embeddings=32768,
    ),
    "deepseek-v2-lite": _as(
        "deepseek_v2", "DeepseekV2ForCausalLM", _llama(27, 2048, 10944, 16, 16), head_dim=64,
        kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=128,
        v_head_dim=128, n_routed_experts=64, n_shared_experts=2, moe_intermediate_size=1408,
        first_k_dense_replace=1, num_experts_per_tok=6, n_group=1, topk_group=1,
        topk_method="greedy", routed_scaling_factor=1.0, norm_topk_prob=False,
        scoring_func="softmax", moe_layer_freq=1, max_position_embeddings=32768,
    ),
    "gemma2-9b": _as(
        "gemma2", "Gemma2ForCausalLM", _llama(42, 3584, 14336, 16, 8), head_dim=256,
        sliding_window=4096, tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=256, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        max_position_embeddings=8192, vocab_size=256000,
        layer_types=["full_attention" if at % 2 else "sliding_attention" for at in range(42)],
    ),
    "gemma3-1b-window": _as(
        "gemma3_text", "Gemma3ForCausalLM", _llama(26, 1152, 6912, 4, 1), head_dim=256,
        sliding_window=512, tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=256, max_position_embeddings=32768, vocab_size=262144,
        attention_bias=False,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        layer_types=["full_attention" if (at + 1) % 6 == 0 else "sliding_attention"
                     for at in range(26)],
    ),
    # Attention with sinks, a window in each second layer, experts of 4 bits.
    "gpt-oss-20b": _as(
        "gpt_oss", "GptOssForCausalLM", _llama(24, 2880, 2880, 64, 8), head_dim=64,
        num_local_experts=32, num_experts_per_tok=4, sliding_window=128, attention_bias=True,
        swiglu_limit=7.0, vocab_size=201088, max_position_embeddings=131072,
        layer_types=["full_attention" if at % 2 else "sliding_attention" for at in range(24)],
        rope_parameters={
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 4096, "rope_theta": 150000.0,
        },
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]},
    ),
    "mistral-7b-window": _as(
        "mistral", "MistralForCausalLM", _llama(32, 4096, 14336, 32, 8), sliding_window=4096,
        max_position_embeddings=32768,
    ),
    "phi3-mini-many-heads": _as(
        "phi3", "Phi3ForCausalLM", _llama(32, 3072, 8192, 32, 32), sliding_window=None,
        max_position_embeddings=4096, pad_token_id=0, original_max_position_embeddings=4096,
    ),
    "llama-one-kv-head": _llama(24, 2048, 8192, 16, 1),
}  # fmt: skip


def make(name: str, tokenizer: Path, into: Path) -> Path:
    """The model's folder below `into`; tokenizer files come from the real model `tokenizer`."""
    folder = into / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in (tokenizer / each for each in TOKENIZER):
        if file.exists():
            shutil.copy(file, folder / file.name)
    write_config(name, tokenizer, folder)
    empty_weights(folder / "model.safetensors")
    return folder


def write_config(name: str, tokenizer: Path, folder: Path) -> None:
    """config.json alone, of which fit computes the weights: their file would be their size."""
    real = json.loads((tokenizer / "config.json").read_text())
    ids = {key: real[key] for key in ("bos_token_id", "eos_token_id") if key in real}
    config = {"torch_dtype": "bfloat16", "vocab_size": VOCABULARY, **ids, **SHAPES[name]}
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def empty_weights(path: Path) -> None:
    """A safetensors file that is whole and holds no tensor: a folder without weights is refused."""
    header = b"{}      "
    path.write_bytes(struct.pack("<Q", len(header)) + header)
