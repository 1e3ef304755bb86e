"""Quantised weights: bits of one with its scales, and what can't be had at all. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Bits a weight takes with its scales and zero points: 4 bits in groups of 128 with a 16-bit scale
# and a 4-bit zero point; MXFP4: blocks of 32 with an 8-bit scale; FP8: scales are negligible.
BITS = {
    "awq": 4.16, "gptq": 4.16, "awq_marlin": 4.16, "gptq_marlin": 4.16, "auto_round": 4.16,
    "auto_awq": 4.16, "auto_gptq": 4.16, "inc": 4.16, "mxfp4": 4.25, "gpt_oss_mxfp4": 4.25,
    "nvfp4": 4.5, "modelopt_fp4": 4.5, "bitsandbytes": 4.5, "hqq": 4.5,
    "nvfp4_per_token": 4.5,
    "fp8": 8.03, "fbgemm_fp8": 8.03, "modelopt": 8.03, "experts_int8": 8.03, "quark": 8.03,
    "fp8_per_tensor": 8.03, "fp8_per_block": 8.03, "fp8_per_channel": 8.03,
    "int8_per_channel_weight_only": 8.03, "mxfp8": 8.25, "modelopt_mxfp8": 8.25,
}  # fmt: skip
# What vLLM makes of 16-bit weights while it loads them (config/quantization.py; plain fp8 is an old
# name of fp8_per_tensor). A test holds the names against vLLM's own.
AT_LOAD = (
    "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "mxfp8", "mxfp4",
    "int8_per_channel_weight_only", "nvfp4_per_token", "fp8",
)  # fmt: skip
# Of these vLLM packs the experts alone; a model without experts gets no smaller.
EXPERTS_ALONE = ("mxfp4", "int8_per_channel_weight_only", "nvfp4_per_token", "experts_int8")
# Other names of one form, which vLLM takes for it.
FORMS = {
    "awq_marlin": "awq", "auto_awq": "awq", "gptq_marlin": "gptq", "auto_gptq": "gptq",
    "moe_wna16": "", "humming": "", "inc": "auto_round", "gpt_oss_mxfp4": "mxfp4",
}  # fmt: skip


def merged(config: Mapping[str, Any], beside: object) -> dict[str, Any]:
    """`config` with what ModelOpt writes into a file of its own, hf_quant_config.json."""
    found = beside.get("quantization") if isinstance(beside, Mapping) else None
    if config.get("quantization_config") or not isinstance(found, Mapping):
        return dict(config)
    name = "modelopt_fp4" if "FP4" in str(found.get("quant_algo")) else "modelopt"
    return {**config, "quantization_config": {**found, "quant_method": name}}


def _plain(name: object) -> str:
    return str(name or "").lower().replace("-", "_")


def method(config: Mapping[str, Any]) -> str:
    """The form's name in a model's own config; ModelOpt's kinds differ in their algorithm."""
    name, algorithm = _plain(config.get("quant_method")), _plain(config.get("quant_algo"))
    if name == "modelopt":
        kinds = {"mxfp8": "modelopt_mxfp8", "fp4": "modelopt_fp4"}
        return next((form for mark, form in kinds.items() if mark in algorithm), name)
    return name or algorithm


def bits(config: Mapping[str, Any] | None, asked: str | None) -> tuple[str, float | None]:
    """The form and its bits a weight; None where nothing is quantised."""
    if config is None:
        return _plain(asked), BITS.get(_plain(asked))
    name = method(config)
    if name == "compressed_tensors":
        return name, _compressed(config)
    stated = config.get("bits") or config.get("w_bit")
    if isinstance(stated, int):
        return name, stated + (0.16 if stated <= 4 else 0.14)
    if name == "bitsandbytes" and config.get("load_in_8bit"):
        return name, 8.03
    return name, BITS.get(name, 16.0)


def _compressed(config: Mapping[str, Any]) -> float:
    for weights in _group_weights(config):
        if isinstance(weights.get("num_bits"), int):
            stated = int(weights["num_bits"])
            return stated + (0.16 if stated <= 4 else 0.03)
    return 16.0


def _group_weights(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    groups = config.get("config_groups")
    found = [
        group.get("weights")
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping)
    ]
    return [weights for weights in found if isinstance(weights, Mapping)]


def block(config: Mapping[str, Any] | None) -> int | None:
    """Weights that share a scale: a rank's part of a layer must be a multiple of it."""
    if config is None:
        return None
    places = [config, *_group_weights(config)]
    for place in places:
        size = place.get("weight_block_size") or place.get("block_structure")
        if isinstance(size, list) and size and isinstance(size[0], int):
            return max(part for part in size if isinstance(part, int))
        group = place.get("group_size") or place.get("q_group_size")
        if isinstance(group, int) and group > 0:
            return group
    return None


def kv_dtype(config: Mapping[str, Any] | None) -> str | None:
    """The KV cache's type that a ModelOpt checkpoint asks for itself, where KV_CACHE_DTYPE is empty
    (torch_utils.py get_kv_cache_quant_algo_string)."""
    if config is None or not method(config).startswith("modelopt"):
        return None
    scheme = config.get("kv_cache_scheme") or config.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        return "fp8" if (scheme.get("num_bits"), scheme.get("type")) == (8, "float") else None
    return "fp8" if _plain(scheme) == "fp8" else None


def refusal(config: Mapping[str, Any] | None, asked: str | None) -> str | None:
    """Why vLLM won't take QUANTIZATION for this model; None where it does."""
    if asked is None:
        return None
    name = FORMS.get(_plain(asked), _plain(asked))
    if config is None and _plain(asked) not in AT_LOAD:
        return (
            f"found QUANTIZATION={asked} and weights that are not quantised; wanted one that is"
            f" made while loading ({', '.join(AT_LOAD)})"
        )
    own = method(config) if config is not None else name
    if name and own != name:
        return f"found QUANTIZATION={asked} and a model in the form {own}; wanted its own"
    return None
