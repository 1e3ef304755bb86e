"""Reports as the plugin writes them, made by the plugin's own class."""

from __future__ import annotations

import json
from dataclasses import replace

from graphproof.report import WorkerReport

IN_FORCE = WorkerReport(
    dp_rank=0,
    rank=0,
    vllm="0.24.0",
    torch="2.11.0+cu130",
    runner="v1",
    device="cuda",
    kind="generate",
    mode="FULL_AND_PIECEWISE",
    compile_mode="VLLM_COMPILE",
    backend="FLASH_ATTN",
    full_sizes=tuple(range(1, 513)),
    piecewise_sizes=tuple(range(1, 513)),
    graphs=86,
    capture_seconds=5.0,
    capture_bytes=1_052_266_987,
    compile_seconds=20.7,
    decode_query_len=1,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    enforce_eager=False,
    notes=(),
    memory={},
    error=None,
)
PARTLY = replace(
    IN_FORCE,
    mode="PIECEWISE",
    full_sizes=(),
    graphs=51,
    notes=(
        "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with X backend (support: NEVER);"
        " setting cudagraph_mode=PIECEWISE because attention is compiled piecewise",
    ),
)
EAGER = replace(
    IN_FORCE,
    mode="NONE",
    compile_mode="NONE",
    full_sizes=(),
    piecewise_sizes=(),
    graphs=0,
    capture_seconds=None,
    capture_bytes=None,
    compile_seconds=None,
)


def written(*reports: WorkerReport) -> str:
    """What the scripted program is to write, for its variable REPORTS."""
    return json.dumps([each.to_json() for each in reports])
