"""Is this machine fit for these settings? Facts are gathered once, then judged by pure functions.

Each finding is one line with found, wanted and fix. Problems stop the start (exit 3), notes do not.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.host import cards, versions
from launcher.host.cards import Card
from launcher.options import flags
from launcher.options.argv import CPU_KV_CACHE_BYTES
from launcher.options.settings import MIB, Settings

GIB = 2**30
# vLLM's processes, torch and one step's buffers on a CPU, beyond weights and KV cache: 3.3 GB were
# measured in all with 0.27 GB of weights and a KV cache of 1 GiB.
CPU_OVERHEAD_BYTES = 1500 * MIB
# A compile cache and a few temporary files; the model itself is on disk already.
DISK_BYTES = 200 * MIB
SHM_BYTES = 1 * GIB  # each ring between ranks takes 160 MiB; 1 GiB is the least that carries all


@dataclass(frozen=True)
class Gpus:
    """What `nvidia-smi -L` lists: whole GPUs and MIG slices; `error` where it could not."""

    whole: int = 0
    slices: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Facts:
    """The machine as it is. Sizes in bytes, None where unknown. `disks`: folder → free bytes, or
    None where it can't be written."""

    gpus: Gpus
    visible_devices: str | None
    launch_blocking: str | None
    disks: Mapping[Path, int | None]
    shm_free: int | None
    memory_free: int | None
    weights: int
    cards: tuple[Card, ...] = ()
    needs: versions.Needs | None = None  # of a driver, by the vLLM that is installed


@dataclass(frozen=True)
class Verdict:
    """Lines for the operator."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]


def judge(settings: Settings, facts: Facts) -> Verdict:
    """All findings about `facts` for `settings`."""
    if settings.device == "cpu":
        problems, notes = [*_memory(settings, facts)], []
    else:
        problems = [
            *(_gpus(settings, facts) or _cards(settings, facts)),
            *_launch_blocking(settings, facts),
        ]
        notes = _shared_memory(settings, facts)
    return Verdict((*problems, *_disks(facts)), tuple(notes))


def _cards(settings: Settings, facts: Facts) -> list[str]:
    own = cards.used(facts.cards, facts.visible_devices, settings.tensor_parallel_size)
    findings = (
        cards.driver(facts.cards, facts.needs, versions.load()),
        cards.without_instances(own, facts.gpus.slices),
        cards.too_old(own),
        cards.crowded(own, settings.gpu_memory_utilization),
    )
    return [line for line in findings if line]


def _gpus(settings: Settings, facts: Facts) -> list[str]:
    wanted = settings.tensor_parallel_size
    gpus = facts.gpus
    if gpus.error:
        return [
            f"GPU: found none ({gpus.error}); wanted {wanted}; fix: check the driver with"
            " nvidia-smi on the host and the container toolkit, or set STACK_MODE=cpu"
        ]
    if gpus.slices and wanted > 1:
        return [
            f"GPU: found MIG slices; wanted whole GPUs for TENSOR_PARALLEL_SIZE={wanted}, since"
            " slices can't talk to each other; fix: turn MIG off, or set TENSOR_PARALLEL_SIZE=1"
        ]
    usable = visible(gpus, facts.visible_devices)
    if usable >= wanted:
        return []
    limited = f" (CUDA_VISIBLE_DEVICES={facts.visible_devices})" if facts.visible_devices else ""
    return [
        f"GPU: found {usable}{limited}; wanted {wanted}, as TENSOR_PARALLEL_SIZE says;"
        f" fix: set TENSOR_PARALLEL_SIZE={max(usable, 1)}, or give this engine more GPUs"
    ]


def visible(gpus: Gpus, devices: str | None) -> int:
    """How many devices a CUDA program sees. CUDA reads the list up to the first entry that names
    no device; ids of GPUs and slices are taken as good."""
    there = gpus.slices or gpus.whole
    if not devices:
        return there
    count = 0
    for entry in (text.strip() for text in devices.split(",")):
        by_id = entry.startswith(("GPU-", "MIG-"))
        if not by_id and not (re.fullmatch(r"[0-9]{1,4}", entry) and int(entry) < there):
            break
        count += 1
    return min(count, there)


def _launch_blocking(settings: Settings, facts: Facts) -> list[str]:
    found = (facts.launch_blocking or "").strip()
    if found in ("", "0") or not settings.require_cuda_graphs:
        return []
    return [
        f"CUDA_LAUNCH_BLOCKING: found {found}; wanted it unset, since it makes every kernel wait"
        " and forbids CUDA graphs; fix: unset it, or set REQUIRE_CUDA_GRAPHS=false to debug"
    ]


def _shared_memory(settings: Settings, facts: Facts) -> list[str]:
    if settings.tensor_parallel_size == 1 or facts.shm_free is None or facts.shm_free >= SHM_BYTES:
        return []
    return [
        f"shared memory: found {facts.shm_free // MIB} MiB free; wanted {SHM_BYTES // MIB} MiB for"
        f" {settings.tensor_parallel_size} GPUs, a smaller one may fail under load;"
        " fix: run the container with ipc: host"
    ]


def _memory(settings: Settings, facts: Facts) -> list[str]:
    own = flags.is_given(flags.read(settings.extra_args), "kv-cache-memory-bytes")
    kv_cache = 0 if own else CPU_KV_CACHE_BYTES
    wanted = facts.weights + kv_cache + CPU_OVERHEAD_BYTES
    if facts.memory_free is None or facts.memory_free >= wanted:
        return []
    return [
        f"memory: found {facts.memory_free / GIB:.1f} GiB free; wanted {wanted / GIB:.1f} GiB for"
        " weights, KV cache and vLLM; fix: free memory, raise the container's limit, or choose a"
        " smaller MODEL"
    ]


def _disks(facts: Facts) -> list[str]:
    lines = []
    for folder, free in facts.disks.items():
        if free is None:
            lines.append(
                f"{folder}: found not writable for user {os.geteuid()}; wanted a cache folder;"
                " fix: give it to that user (in Compose: remove the old volume)"
            )
        elif free < DISK_BYTES:
            lines.append(
                f"{folder}: found {free // MIB} MiB free; wanted {DISK_BYTES // MIB} MiB for"
                " caches; fix: free some disk space"
            )
    return lines
