"""Which architectures the arithmetic was held against; what it does not count is said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# tests/unit/fit and tests/engine hold these: their parameters, KV cache and groups.
KNOWN = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "gemma3_text",
    "phi3", "deepseek_v2", "deepseek_v3", "gpt_oss", "falcon",
)  # fmt: skip
# Layers of these are not all attention; what they keep per sequence is not told by these numbers.
RECURRENT = (
    "mamba", "jamba", "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "nemotron_h",
    "qwen3_next", "qwen3_5", "zamba", "rwkv", "lfm2", "minimax", "kimi_linear", "plamo2",
)  # fmt: skip


def rough(config: Mapping[str, Any], text: Mapping[str, Any], kind: str) -> str | None:
    """Why numbers for this config are an estimate; None where they are not. `text`: the part of
    `config` that describes the language model, of the type `kind`."""
    if kind.startswith(RECURRENT):
        return f"{kind} has layers whose state is not counted here"
    if config.get("is_encoder_decoder"):
        return "an encoder-decoder's cross attention is not counted here"
    if kind not in KNOWN:
        return (
            f"{kind or 'a config without model_type'} is counted by the general rule for decoders"
        )
    if text is not config:
        return "the parts for pictures or sound are counted by their files only"
    return None
