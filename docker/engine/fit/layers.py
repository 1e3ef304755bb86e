"""Which layers keep all tokens, which a window of them, which none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["full", "sliding", "chunked", "linear"]
# Attention that alternates without a list of it: every n-th layer is full, from n-1 on. What
# transformers' config classes fill in (layer_types).
PATTERNS = {
    "gemma2": 2,
    "gemma3_text": 6,
    "gemma3": 6,
    "gpt_oss": 2,
    "cohere2": 4,
    "llama4_text": 4,
}


def window(config: Mapping[str, Any]) -> int | None:
    """Tokens that a sliding or chunked layer looks back; None where all layers keep everything."""
    if config.get("use_sliding_window") is False:
        return None
    found = config.get("sliding_window") or config.get("attention_chunk_size")
    return int(found) if isinstance(found, int) else None


def kinds(config: Mapping[str, Any], kind: str, layers: int) -> tuple[Kind, ...]:
    """One for each layer. `kind`: the model_type."""
    listed = config.get("layer_types")
    if isinstance(listed, list) and listed:
        return tuple(_named(str(one)) for one in listed[:layers])
    full: Kind = "full"
    if window(config) is None:
        return (full,) * layers
    local: Kind = "chunked" if config.get("attention_chunk_size") else "sliding"
    if config.get("max_window_layers") is not None:  # Qwen: full below that layer
        first = int(config["max_window_layers"])
        return tuple(full if at < first else local for at in range(layers))
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
