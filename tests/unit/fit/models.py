"""Shapes of well-known models: the fields of their public config.json that decide the size, and
the parameter count that their pages state (in billions)."""

from __future__ import annotations

from typing import Any

CAUSAL = ["LlamaForCausalLM"]


def _config(kind: str, **fields: object) -> dict[str, Any]:
    return {"model_type": kind, "architectures": CAUSAL, "torch_dtype": "bfloat16", **fields}


def _size(layers: int, hidden: int, intermediate: int, vocab: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": intermediate,
        "vocab_size": vocab,
    }  # fmt: skip


def _heads(heads: int, kv_heads: int, **more: int) -> dict[str, int]:
    return {"num_attention_heads": heads, "num_key_value_heads": kv_heads, **more}


LLAMA_8B = _config(
    "llama", **_size(32, 4096, 14336, 128256), **_heads(32, 8), tie_word_embeddings=False,
    max_position_embeddings=131072, rope_scaling={"rope_type": "llama3", "factor": 8.0},
)  # fmt: skip
# What was measured on an H200: the same with another vocabulary and context.
LLAMA_8B_SMALL_VOCAB = LLAMA_8B | {
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_scaling": None,
}
LLAMA_70B = _config(
    "llama", **_size(80, 8192, 28672, 128256), **_heads(64, 8), tie_word_embeddings=False,
    max_position_embeddings=131072,
)  # fmt: skip
QWEN25_05B = _config(
    "qwen2", **_size(24, 896, 4864, 151936), **_heads(14, 2), tie_word_embeddings=True,
    max_position_embeddings=32768, sliding_window=32768, use_sliding_window=False,
)  # fmt: skip
QWEN25_7B = _config(
    "qwen2", **_size(28, 3584, 18944, 152064), **_heads(28, 4), tie_word_embeddings=False,
    max_position_embeddings=32768, sliding_window=131072, use_sliding_window=False,
)  # fmt: skip
QWEN3_06B = _config(
    "qwen3", **_size(28, 1024, 3072, 151936), **_heads(16, 8, head_dim=128),
    tie_word_embeddings=True, max_position_embeddings=40960,
)  # fmt: skip
QWEN3_30B_A3B = _config(
    "qwen3_moe", **_size(48, 2048, 6144, 151936), **_heads(32, 4, head_dim=128),
    tie_word_embeddings=False, max_position_embeddings=262144, num_experts=128,
    moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
)  # fmt: skip
MIXTRAL = _config(
    "mixtral", **_size(32, 4096, 14336, 32000), **_heads(32, 8), tie_word_embeddings=False,
    max_position_embeddings=32768, num_local_experts=8, sliding_window=None,
)  # fmt: skip
MISTRAL_7B = _config(
    "mistral", **_size(32, 4096, 14336, 32000), **_heads(32, 8), tie_word_embeddings=False,
    max_position_embeddings=32768, sliding_window=4096,
)  # fmt: skip
GEMMA2_9B = _config(
    "gemma2", **_size(42, 3584, 14336, 256000), **_heads(16, 8, head_dim=256),
    max_position_embeddings=8192, sliding_window=4096,
)  # fmt: skip
GEMMA3_27B = {
    "model_type": "gemma3",
    "architectures": ["Gemma3ForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text", **_size(62, 5376, 21504, 262208),
        **_heads(32, 16, head_dim=128), "sliding_window": 1024, "max_position_embeddings": 131072,
    },
}  # fmt: skip
DEEPSEEK_V2_LITE = _config(
    "deepseek_v2", **_size(27, 2048, 10944, 102400), **_heads(16, 16), tie_word_embeddings=False,
    max_position_embeddings=163840, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64,
    qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=64, n_shared_experts=2,
    moe_intermediate_size=1408, first_k_dense_replace=1,
)  # fmt: skip
DEEPSEEK_V3 = _config(
    "deepseek_v3", **_size(61, 7168, 18432, 129280), **_heads(128, 128), tie_word_embeddings=False,
    max_position_embeddings=163840, kv_lora_rank=512, q_lora_rank=1536, qk_rope_head_dim=64,
    qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=256, n_shared_experts=1,
    moe_intermediate_size=2048, first_k_dense_replace=3,
    quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
)  # fmt: skip
GPT_OSS_20B = _config(
    "gpt_oss", **_size(24, 2880, 2880, 201088), **_heads(64, 8, head_dim=64),
    tie_word_embeddings=False, max_position_embeddings=131072, num_local_experts=32,
    sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12,
    quantization_config={"quant_method": "mxfp4"},
)  # fmt: skip
PHI3_MINI = _config(
    "phi3", **_size(32, 3072, 8192, 32064), **_heads(32, 32), tie_word_embeddings=False,
    max_position_embeddings=4096, sliding_window=2047,
)  # fmt: skip
FALCON_7B = {
    "model_type": "falcon", "architectures": ["FalconForCausalLM"], "torch_dtype": "bfloat16",
    "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71, "vocab_size": 65024,
    "multi_query": True, "new_decoder_architecture": False, "tie_word_embeddings": True,
}  # fmt: skip
SMOLLM2_135M = _config(
    "llama", **_size(30, 576, 1536, 49152), **_heads(9, 3), tie_word_embeddings=True,
    max_position_embeddings=8192,
)  # fmt: skip
QWEN25_7B_AWQ = QWEN25_7B | {
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}
}

# Billions of parameters as the models' pages state them.
PARAMETERS = (
    (LLAMA_8B, 8.03), (LLAMA_70B, 70.55), (QWEN25_05B, 0.494), (QWEN25_7B, 7.62),
    (QWEN3_06B, 0.596), (QWEN3_30B_A3B, 30.53), (MIXTRAL, 46.70), (MISTRAL_7B, 7.24),
    (GEMMA2_9B, 9.24), (GEMMA3_27B, 27.0), (DEEPSEEK_V2_LITE, 15.71), (DEEPSEEK_V3, 671.0),
    (GPT_OSS_20B, 20.91), (PHI3_MINI, 3.82), (FALCON_7B, 6.92), (SMOLLM2_135M, 0.1345),
)  # fmt: skip
# Bytes of KV cache a token at 16 bits on one GPU.
KV_BYTES = (
    (LLAMA_8B, 131072), (LLAMA_70B, 327680), (QWEN25_7B, 57344), (QWEN3_06B, 114688),
    (QWEN25_05B, 12288), (DEEPSEEK_V3, 70272), (SMOLLM2_135M, 23040), (MIXTRAL, 131072),
)  # fmt: skip
