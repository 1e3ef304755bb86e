"""How long a context may be: a model's own limit, and what vLLM takes where none is set. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_sequence_length", "max_seq_length", "seq_len", "max_target_positions",
)  # fmt: skip
UNTOLD = 2048  # vLLM's own, where a config has none of these
# Positions of these are the stretched ones already (vLLM 0.32's config/model.py; 0.24 differs for a
# yarn that was added by hand: it takes original x factor, which 0.33 refuses).
STRETCHED = (
    "default", "llama3", "longrope", "su", "yarn", "deepseek_yarn", "deepseek_llama_scaling",
    "mrope",
)  # fmt: skip


@dataclass(frozen=True)
class Lengths:
    """Tokens. `longest`: more is refused. `usual`: what MAX_MODEL_LEN left empty means."""

    longest: int
    usual: int


def read(config: Mapping[str, Any]) -> Lengths:
    """Of a text model's config."""
    positions = [int(config[n]) for n in POSITIONS if isinstance(config.get(n), int)]
    length = min(positions) if positions else UNTOLD
    scalings = _scalings(config)
    if str(config.get("model_type", "")).startswith("gemma3"):
        return Lengths(length, length)
    factors = [float(s.get("factor") or 1) for s in scalings if _kind(s) not in STRETCHED]
    longest = int(length * (factors[-1] if factors else 1))
    original = config.get("original_max_position_embeddings")
    if any(_kind(s) == "longrope" for s in scalings) and isinstance(original, int):
        return Lengths(longest, min(original, longest))
    return Lengths(longest, longest)


def _scalings(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of the whole model, or (transformers 5) one for each kind of layer."""
    found = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(found, Mapping):
        return []
    nested = [value for value in found.values() if isinstance(value, Mapping)]
    return nested or [found]


def _kind(scaling: Mapping[str, Any]) -> str:
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    return "longrope" if kind == "su" else kind
