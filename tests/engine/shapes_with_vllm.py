"""Run by the engine's Python: builds models with vLLM's own classes, but without weights (on the
meta device), and prints what it then knows of each: the parameters of one rank, the groups of its
KV cache, its context. Reads a JSON list of {"model", "folder", "ranks"}."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.config.vllm import get_layers_from_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.core.kv_cache_utils import get_kv_cache_groups


def config_of(folder: str) -> VllmConfig:
    config = EngineArgs(
        model=folder, skip_tokenizer_init=True, load_format="dummy", enforce_eager=True,
        max_num_batched_tokens=8192, max_num_seqs=256,
    ).create_engine_config()  # fmt: skip
    # The engine's core settles it before it plans; each one is planned alike.
    config.cache_config.kv_cache_layout = config.cache_config.kv_cache_layout or "LBNHC"
    return config


def parallel(ranks: int) -> None:
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    else:
        file = Path(tempfile.mkdtemp()) / "store"
        parallel_state.init_distributed_environment(1, 0, f"file://{file}", 0, "gloo")
    parallel_state.initialize_model_parallel(1, 1)
    # Layers ask the group for its size; nothing is sent while a model is built.
    parallel_state.get_tp_group().world_size = ranks


def shape(folder: str, ranks: int) -> dict[str, Any]:
    config = config_of(folder)
    with set_current_vllm_config(config):
        parallel(ranks)
        with torch.device("meta"), set_default_torch_dtype(config.model_config.dtype):
            model = initialize_model(config)
        layers = get_layers_from_vllm_config(config, AttentionLayerBase)
        specs = {name: layer.get_kv_cache_spec(config) for name, layer in layers.items()}
        groups = get_kv_cache_groups(config, {n: s for n, s in specs.items() if s is not None})
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
        "context": config.model_config.max_model_len,
        "groups": [
            {
                "kind": type(group.kv_cache_spec).__name__,
                "layers": len(group.layer_names),
                "window": getattr(group.kv_cache_spec, "sliding_window", None),
                "token_bytes": group.kv_cache_spec.page_size_bytes
                // group.kv_cache_spec.block_size,
            }
            for group in groups
        ],
    }


def main() -> None:
    for asked in json.load(sys.stdin):
        found = shape(asked.pop("folder"), asked["ranks"])
        print(json.dumps({**asked, **found}), flush=True)  # noqa: T201 - its answer


main()
