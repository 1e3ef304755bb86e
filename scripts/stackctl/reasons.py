"""Which line of a log says why a program ended. Imports nothing."""

import re
from collections.abc import Sequence

# Our own programs end with a line that has its fix; the launcher announces vLLM's reason; nginx
# marks what it cannot start with.
_TELLING = re.compile(r"fix:|engine: failed:|\[emerg\]")


# What Docker says of a GPU that it cannot hand over, and the way out.
_OF_DOCKER = (
    (
        re.compile(r"could not select device driver"),
        "Docker cannot reach the GPU; wanted the NVIDIA container toolkit; fix: install"
        " nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker &&"
        " systemctl restart docker",
    ),
    (
        re.compile(r"unsatisfied condition: cuda|driver/library version mismatch"),
        "the NVIDIA driver is too old for this image; wanted driver 580 or newer; fix: update the"
        " driver, or VLLM_IMAGE=vllm/vllm-openai:v0.32.0-cu129 in .env",
    ),
)


def telling(lines: Sequence[str]) -> str:
    """The last telling line, else the last line."""
    for pattern, reason in _OF_DOCKER:
        if any(pattern.search(line) for line in lines):
            return reason
    found = [line for line in lines if _TELLING.search(line)]
    chosen = (found or list(lines) or ["(it said nothing)"])[-1]
    return chosen.strip().removeprefix("engine: failed: ")
