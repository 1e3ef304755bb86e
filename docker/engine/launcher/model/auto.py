"""MODEL=auto on a GPU: which model, by the memory of one card.

`python3 -m launcher.model.auto` tells which one that is on this host; exit 1 where no GPU is seen.
"""

import re
import subprocess
import sys

from launcher.model.fetcherror import Code, FetchError

# Least total memory of one GPU in MiB → model. All are ungated, Apache-2.0, answer without a
# reasoning pass, and leave at least a fifth of the card for the KV cache (bf16 weights by their
# parameter counts: 57, 28, 14.2, 7.5, 2.9 and 0.9 GiB).
BY_MEMORY = (
    (75_000, "Qwen/Qwen3-30B-A3B-Instruct-2507"),
    (40_000, "Qwen/Qwen2.5-14B-Instruct"),
    (22_000, "Qwen/Qwen2.5-7B-Instruct"),
    (12_000, "Qwen/Qwen3-4B-Instruct-2507"),
    (5_000, "Qwen/Qwen2.5-1.5B-Instruct"),
    (0, "Qwen/Qwen2.5-0.5B-Instruct"),
)
QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


def choose(memory_mib: int) -> str:
    """The model for a GPU with that much memory."""
    return next(model for least, model in BY_MEMORY if memory_mib >= least)


def smallest_gpu_mib() -> int:
    """Total memory of the smallest GPU here, in MiB. Raises FetchError where none is seen."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=60, check=False)
        sizes = parse(done.stdout)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        sizes = []
    if not sizes:
        raise FetchError(
            Code.NO_SUCH_MODEL,
            "MODEL: found auto and no GPU to choose by (nvidia-smi lists none); wanted a model;"
            f" fix: set MODEL in .env, for example to {choose(24_000)}",
        )
    return min(sizes)


def parse(listing: str) -> list[int]:
    """MiB per GPU from nvidia-smi's lines; cards that don't tell ([N/A]) are left out."""
    return [int(line) for line in listing.split("\n") if re.fullmatch(r" *[0-9]{1,9} *", line)]


def main() -> int:
    try:
        chosen = choose(smallest_gpu_mib())
    except FetchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{chosen}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
