"""Configs of real models (tests/data/models), and what is known of them: the parameters that their
pages state (in billions), and what vLLM 0.32 makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data"
Config = dict[str, Any]


def load(name: str) -> Config:
    """A config of tests/data/models. `name-plain`: without its quantisation; `name-text`: the
    language model of a multi-modal one, alone."""
    base = name.removesuffix("-plain").removesuffix("-text")
    config: Config = json.loads((DATA / "models" / f"{base}.json").read_text(encoding="utf-8"))
    if name.endswith("-plain"):
        return {k: v for k, v in config.items() if k not in ("quantization_config", "auto_map")}
    if name.endswith("-text"):
        text: Config = config["text_config"]
        own = {"architectures": ["Gemma3ForCausalLM"], "torch_dtype": config["torch_dtype"]}
        return {**text, **own}
    return config


def vllm_answers() -> list[Config]:
    """What vLLM itself says, recorded by tests/engine/shapes_with_vllm.py."""
    found = json.loads((DATA / "vllm_models.json").read_text(encoding="utf-8"))
    answers: list[Config] = found["answers"]
    return answers


NAMES = tuple(
    path.stem for path in sorted((DATA / "models").glob("*.json")) if "hf_quant" not in path.stem
)
LLAMA_8B = load("llama-3.1-8b")
# What was measured on an H200: the same with another vocabulary and context.
LLAMA_8B_SMALL_VOCAB = LLAMA_8B | {
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_scaling": None,
}
LLAMA_70B = load("llama-3.1-70b")
QWEN25_7B = load("qwen2.5-7b")
QWEN25_7B_AWQ = load("qwen2.5-7b-awq")
QWEN25_05B = QWEN25_7B | {
    "num_hidden_layers": 24, "hidden_size": 896, "intermediate_size": 4864, "vocab_size": 151936,
    "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_06B = load("qwen3-0.6b")
QWEN3_30B_A3B = load("qwen3-30b-a3b")
MIXTRAL = load("mixtral-8x7b")
MISTRAL_7B = load("mistral-7b-v0.1")
GEMMA2_9B = load("gemma-2-9b")
GEMMA3_27B = load("gemma-3-27b")
DEEPSEEK_V2_LITE = load("deepseek-v2-lite")
DEEPSEEK_V3 = load("deepseek-v3")
GPT_OSS_20B = load("gpt-oss-20b")
PHI3_MINI = load("phi-3-mini-4k")
FALCON_7B = load("falcon-7b")
SMOLLM2_135M = load("smollm2-135m")

# Billions of parameters as the models' pages state them.
PARAMETERS = (
    (LLAMA_8B, 8.03), (LLAMA_70B, 70.55), (QWEN25_05B, 0.494), (QWEN25_7B, 7.62),
    (QWEN3_06B, 0.596), (QWEN3_30B_A3B, 30.53), (MIXTRAL, 46.70), (MISTRAL_7B, 7.24),
    (GEMMA2_9B, 9.24), (GEMMA3_27B, 27.0), (DEEPSEEK_V2_LITE, 15.71), (DEEPSEEK_V3, 671.0),
    (GPT_OSS_20B, 20.91), (PHI3_MINI, 3.82), (FALCON_7B, 6.92), (SMOLLM2_135M, 0.1345),
    (load("phi-4"), 14.66), (load("qwen3-235b-a22b"), 235.1), (load("gpt-oss-120b"), 116.8),
    (load("llama-4-scout"), 107.8), (load("qwen2.5-72b-gptq"), 72.96),
    (load("qwen3-8b"), 8.19), (load("qwen3-32b"), 32.76), (load("qwen2.5-32b"), 32.76),
    (load("mistral-small-24b"), 23.57), (load("qwen3-embedding-0.6b"), 0.596),
)  # fmt: skip
# Bytes of KV cache a token at 16 bits on one GPU.
KV_BYTES = (
    (LLAMA_8B, 131072), (LLAMA_70B, 327680), (QWEN25_7B, 57344), (QWEN3_06B, 114688),
    (QWEN25_05B, 12288), (DEEPSEEK_V3, 70272), (SMOLLM2_135M, 23040), (MIXTRAL, 131072),
)  # fmt: skip
