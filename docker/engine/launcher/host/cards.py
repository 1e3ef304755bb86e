"""The GPUs by `nvidia-smi --query-gpu`, and what speaks against a start on them."""

import csv
import re
import subprocess
from dataclasses import dataclass

from launcher.host.versions import Build, Needs, problem

MIB = 2**20
GIB = 2**30
FIELDS = ("index", "uuid", "name", "driver_version", "compute_cap", "memory.total", "memory.free",
          "mig.mode.current")  # fmt: skip
OLDEST_CAPABILITY = (7, 5)  # what vLLM's images are built for


@dataclass(frozen=True)
class Card:
    """One GPU. Sizes in bytes; None where nvidia-smi does not tell ([N/A])."""

    index: int
    uuid: str
    name: str
    driver: str
    capability: tuple[int, ...] | None
    total: int | None
    free: int | None
    mig: bool


def query() -> tuple[Card, ...]:
    """This machine's; none where nvidia-smi can't be asked (its listing tells why)."""
    asked = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ()
    return parse(done.stdout) if done.returncode == 0 else ()


def parse(listing: str) -> tuple[Card, ...]:
    """From the query's lines; others are passed over."""
    rows = csv.reader(listing.splitlines(), skipinitialspace=True)
    return tuple(_card([cell.strip() for cell in row]) for row in rows if _is_card(row))


def _is_card(row: list[str]) -> bool:
    return len(row) == len(FIELDS) and row[0].strip().isdecimal()


def _card(row: list[str]) -> Card:
    index, uuid, name, driver, capability, total, free, mig = row
    match = re.fullmatch(r"(\d+)\.(\d+)", capability)
    return Card(
        index=int(index),
        uuid=uuid,
        name=name,
        driver=driver,
        capability=(int(match[1]), int(match[2])) if match else None,
        total=_mib(total),
        free=_mib(free),
        mig=mig == "Enabled",
    )


def _mib(text: str) -> int | None:
    return int(text) * MIB if text.isdecimal() else None


def used(cards: tuple[Card, ...], devices: str | None, count: int) -> tuple[Card, ...]:
    """The cards an engine of `count` ranks takes: the first of CUDA_VISIBLE_DEVICES, or of all."""
    if not devices:
        return cards[:count]
    names = [entry.strip() for entry in devices.split(",")]
    chosen = (next((card for card in cards if _is_named(card, name)), None) for name in names)
    return tuple(card for card in chosen if card is not None)[:count]


def _is_named(card: Card, name: str) -> bool:
    return str(card.index) == name or (name.startswith("GPU-") and card.uuid.startswith(name))


def without_instances(cards: tuple[Card, ...], slices: int) -> str | None:
    """MIG that is on and cut into nothing."""
    if slices or not any(card.mig for card in cards):
        return None
    return (
        "GPU: found MIG turned on and no instances on it; wanted a whole GPU, vLLM sees none so;"
        " fix: turn MIG off (end what uses the GPU, then: nvidia-smi -i 0 -mig 0), or make some"
    )


def too_old(cards: tuple[Card, ...]) -> str | None:
    """A GPU that vLLM's images hold no code for."""
    for card in cards:
        if card.capability and card.capability < OLDEST_CAPABILITY:
            found = ".".join(map(str, card.capability))
            return (
                f"GPU: found {card.name} of compute capability {found}; wanted 7.5 or newer;"
                " fix: another GPU, or STACK_MODE=cpu"
            )
    return None


def driver(cards: tuple[Card, ...], needs: Needs | None, matrix: tuple[Build, ...]) -> str | None:
    """The driver against the build that is installed here."""
    if not cards or needs is None:
        return None
    return problem(matrix, needs, cards[0].driver)


def crowded(cards: tuple[Card, ...], share: float) -> str | None:
    """A GPU whose free memory is less than the share asked for: vLLM says so minutes later. Of MIG
    slices nothing is told here."""
    for card in cards:
        if card.mig or card.total is None or card.free is None:
            continue
        wanted = share * card.total * 0.985  # the driver keeps a part of what it calls total
        if card.free < wanted:
            return (
                f"GPU memory: found {card.free / GIB:.1f} GiB free of {card.total / GIB:.1f} on GPU"
                f" {card.index} ({card.name}); wanted {wanted / GIB:.1f}"
                f" (GPU_MEMORY_UTILIZATION={share:g}); fix: end what else uses it (nvidia-smi shows"
                f" it), or lower the share to {_lower(card.free / card.total):.2f}"
            )
    return None


def _lower(share: float) -> float:
    return max(0.01, int(100 * share - 1) / 100)
