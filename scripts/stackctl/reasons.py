"""Which line of a log says why a program ended. Imports nothing."""

import re
from collections.abc import Sequence

# Our own programs end with a line that has its fix; the launcher announces vLLM's reason; nginx
# marks what it cannot start with.
_TELLING = re.compile(r"fix:|engine: failed:|\[emerg\]")

_TOOLKIT = (
    "found a Docker engine that cannot reach the GPU; wanted the NVIDIA container toolkit in it;"
    " fix: install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker &&"
    " systemctl restart docker"
)
_DRIVER = (
    "found an NVIDIA driver too old for this image; wanted driver 580 or newer; fix: update the"
    " driver, or VLLM_IMAGE=vllm/vllm-openai:v0.32.0-cu129 in .env"
)
_REBOOT = (
    "found an NVIDIA driver that was updated while it was loaded; wanted one version of it;"
    " fix: reboot"
)
# What Docker says of a GPU that it cannot hand over. From Docker 28 on it asks CDI first.
_OF_DOCKER = (
    ("could not select device driver", _TOOLKIT),
    ("failed to discover GPU vendor from CDI", _TOOLKIT),
    ("unknown or invalid runtime name: nvidia", _TOOLKIT),
    ("unsatisfied condition: cuda", _DRIVER),
    ("driver/library version mismatch", _REBOOT),
)


def of_docker(lines: Sequence[str]) -> str | None:
    """The reason with its fix when Docker could not hand over a GPU."""
    text = "\n".join(lines)
    return next((reason for words, reason in _OF_DOCKER if words in text), None)


def telling(lines: Sequence[str]) -> str:
    """Docker's own refusal, else the last telling line, else the last line."""
    known = of_docker(lines)
    if known:
        return known
    found = [line for line in lines if _TELLING.search(line)]
    chosen = (found or list(lines) or ["(it said nothing)"])[-1]
    return chosen.strip().removeprefix("engine: failed: ")
