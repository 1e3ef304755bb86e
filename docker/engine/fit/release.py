"""What differs between versions of vLLM in how much memory is left for the KV cache. Pure.

Read in 0.24, 0.32 and 0.33: v1/worker/gpu_worker.py determine_available_memory,
v1/worker/gpu/model_runner.py, v1/worker/gpu/sample/sampler.py, v1/kv_cache_interface.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The models that 0.24 runs with its second model runner (config/vllm.py there); later all of them.
SECOND_RUNNER = (
    "Qwen3ForCausalLM", "DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM",
    "LlamaForCausalLM", "MistralForCausalLM",
)  # fmt: skip


@dataclass(frozen=True)
class Release:
    """`graphs`: their estimate is taken out of the KV cache. `in_flight`: steps whose tokens a
    sliding window holds beside it. `logits`: bytes of each logit at the sampler's peak in the
    profile run. `state`: bytes a sequence keeps for each word of the vocabulary, counted."""

    graphs: bool
    in_flight: int
    logits: int
    state: float


# 16-bit logits and their float32 copy.
SECOND_0_24 = Release(graphs=False, in_flight=1, logits=6, state=0)
# ... and their probabilities, and the noise they are divided by.
FIRST_0_24 = Release(graphs=True, in_flight=1, logits=14, state=0)
# The profile samples with top-k and top-p (masked logits and probabilities, each float32); counts
# of the tokens so far (int32) and a bit for each token of the prompt.
NEWER = Release(graphs=True, in_flight=2, logits=14, state=4.125)


def of(version: str | None, architecture: str) -> Release:
    """Of a vLLM version like 0.33.0; None is the newest known."""
    match = re.match(r"(\d+)\.(\d+)", version or "")
    if match is None or (int(match[1]), int(match[2])) > (0, 24):
        return NEWER
    return SECOND_0_24 if architecture in SECOND_RUNNER else FIRST_0_24
