"""Lines in which vLLM says that it takes CUDA graphs away, and what to do about each. Pure.

Texts of vLLM 0.24 to 0.33: config/vllm.py, config/compilation.py, config/model.py, platforms/*.py,
v1/worker/gpu_model_runner.py and v1/worker/gpu/model_runner.py.
"""

import re
from dataclasses import dataclass

LONGEST = 300  # characters of a line that are kept
NO_MODE = "take mode out of COMPILATION_CONFIG"
ANOTHER_BACKEND = "choose another --attention-backend in VLLM_EXTRA_ARGS"


@dataclass(frozen=True)
class Downgrade:
    """One line of vLLM's and its fix. natural: this kind of model has no other graphs."""

    line: str
    fix: str
    natural: bool = False


@dataclass(frozen=True)
class _Known:
    start: re.Pattern[str]
    fix: str
    natural: bool = False


def _known(start: str, fix: str, *, natural: bool = False) -> _Known:
    return _Known(re.compile(start), fix, natural)


KNOWN = (
    _known(
        r"Enforce eager set|Cudagraph is disabled under eager mode",
        "take --enforce-eager out of VLLM_EXTRA_ARGS",
    ),
    _known(r"TORCH_COMPILE_DISABLE is set", "unset TORCH_COMPILE_DISABLE"),
    _known(
        r"Cudagraph mode \S+ is not compatible with compilation mode",
        "take mode (or -O0) out of COMPILATION_CONFIG and VLLM_EXTRA_ARGS, and unset"
        " TORCH_COMPILE_DISABLE",
    ),
    _known(r"CUDA graphs are not supported with stock torch\.compile", NO_MODE),
    _known(
        r"Piecewise compilation with empty splitting_ops|Using piecewise cudagraph with empty",
        "take splitting_ops out of COMPILATION_CONFIG",
    ),
    _known(
        r"fuse_attn_quant is incompatible with piecewise",
        "take fuse_attn_quant out of COMPILATION_CONFIG",
    ),
    _known(
        r"DeepEP: Disabling CUDA Graphs",
        "use --all2all-backend deepep_low_latency in VLLM_EXTRA_ARGS",
    ),
    _known(r"MoonEP: Disabling CUDA Graphs", "use another --all2all-backend in VLLM_EXTRA_ARGS"),
    _known(r"KV connector \S+ requires PIECEWISE", "leave that KV connector out"),
    _known(
        r"Dynamic speculative decoding changes the target",
        "give a fixed number of speculative tokens",
    ),
    _known(r"CUDAGraphMode\.\S+ is not supported with", ANOTHER_BACKEND),
    _known(
        r"Cudagraph mode \S+ requires piecewise capture",
        "set VLLM_USE_BREAKABLE_CUDAGRAPH=1, or leave --model-impl at its default",
    ),
    _known(r"Sequence parallelism is incompatible with piecewise", "take enable_sp out"),
    _known(r"CUDA graph is not supported (?:for|on)", "use another MODEL or quantization"),
    _known(r"Pooling models do not support full cudagraphs", "nothing to do", natural=True),
    _known(r"Encoder-decoder models do not support", "nothing to do", natural=True),
    _known(
        r"Skipping (?:encoder and decoder )?CUDA graph capture",
        "take cudagraph_mode NONE (or -O0) out of COMPILATION_CONFIG and VLLM_EXTRA_ARGS",
    ),
)


def of(text: str) -> Downgrade | None:
    """The downgrade that `text` (a message without its prefix) tells of, or None."""
    for known in KNOWN:
        if known.start.match(text):
            line = " ".join(text.split())
            return Downgrade(line[:LONGEST].rstrip(), known.fix, known.natural)
    return None
