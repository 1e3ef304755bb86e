"""A model from the Hugging Face hub, through huggingface_hub (imported only here).

Whole files are never fetched again; cut ones are continued (launcher.model.resume).
"""

import fnmatch
import importlib
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.model import resume
from launcher.model.fetcherror import Code, FetchError
from launcher.model.huberrors import Wanted, translated

# Beside the weights, vLLM reads configs, tokenizers, templates and (with trust_remote_code) code.
SMALL = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken", "*.jsonl")
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")  # the first kind that is there is enough
OTHER_FORMATS = ("original/*", "onnx/*", "openvino/*", "metal/*", "coreml/*", "gguf/*")
SPARE_BYTES = 256 * 2**20  # kept free beyond the download
PROGRESS_EVERY_S = 1.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Remote:
    """A model's files at one commit: name → bytes."""

    commit: str
    files: dict[str, int]


def choose_files(sizes: dict[str, int]) -> dict[str, int]:
    """The files vLLM needs. Safetensors alone where they exist; Mistral's `consolidated` copy of
    the weights only where it is the only one."""
    names = [name for name in sizes if not _matches(name, OTHER_FORMATS)]
    small = [name for name in names if _matches(name, SMALL)]
    for kind in WEIGHTS:
        weights = [name for name in names if fnmatch.fnmatch(name, kind)]
        plain = [name for name in weights if not Path(name).name.startswith("consolidated")]
        if plain or weights:
            return {name: sizes[name] for name in sorted([*small, *(plain or weights)])}
    return {}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def download(wanted: Wanted, say: Say) -> tuple[Path, Remote]:
    """Fetch the model (what is missing of it); its folder and files. Raises FetchError."""
    library = importlib.import_module("huggingface_hub")
    with translated(wanted):
        remote = _look_up(wanted, library)
        _require_space(wanted, remote)
        with _progress(_blobs(wanted), remote, _bytes_here(wanted, remote), say):
            resume.fill(wanted, _blobs(wanted), remote.commit, remote.files)
            folder = library.snapshot_download(
                wanted.model,
                # By name, so that the cache knows the name when there is no network.
                revision=wanted.revision,
                token=wanted.token or False,
                endpoint=wanted.endpoint,
                cache_dir=wanted.cache,
                allow_patterns=[_literally(name) for name in remote.files],
                max_workers=resume.WORKERS,
            )
    return Path(folder), remote


def cached(wanted: Wanted) -> Path | None:
    """The cached folder of that revision, without any network; perhaps incomplete.

    By the cache's own layout, since the library refuses a snapshot without the files we leave out.
    """
    name = wanted.revision or "main"
    ref = _repository(wanted) / "refs" / name
    commit = ref.read_text().strip() if ref.is_file() else name
    snapshot = _repository(wanted) / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _literally(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _look_up(wanted: Wanted, library: Any) -> Remote:  # noqa: ANN401 - an untyped module
    api = library.HfApi(endpoint=wanted.endpoint, token=wanted.token or False)
    info = api.model_info(wanted.model, revision=wanted.revision, files_metadata=True, timeout=30)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    files = choose_files(sizes)
    if not files:
        raise FetchError(
            Code.UNUSABLE,
            f"MODEL: found no weights vLLM loads in {wanted.model}; wanted *.safetensors;"
            " fix: choose the model's repository in safetensors form",
        )
    return Remote(info.sha, files)


def _repository(wanted: Wanted) -> Path:
    return wanted.cache / f"models--{wanted.model.replace('/', '--')}"


def _blobs(wanted: Wanted) -> Path:
    return _repository(wanted) / "blobs"


def _bytes_here(wanted: Wanted, remote: Remote) -> int:
    """Bytes of the wanted files that are on disk already, half-done ones included."""
    snapshot = _repository(wanted) / "snapshots" / remote.commit
    whole = sum(size for name, size in remote.files.items() if (snapshot / name).is_file())
    partial = sum(_size(path) for path in _blobs(wanted).glob(f"*{resume.SUFFIX}"))
    return min(whole + partial, sum(remote.files.values()))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # just moved to its place
        return 0


def _require_space(wanted: Wanted, remote: Remote) -> None:
    wanted.cache.mkdir(parents=True, exist_ok=True)
    needed = sum(remote.files.values()) - _bytes_here(wanted, remote)
    free = shutil.disk_usage(wanted.cache).free
    if needed and needed + SPARE_BYTES > free:
        raise FetchError(
            Code.DISK,
            f"disk: found {free / 1e9:.1f} GB free in {wanted.cache}; wanted"
            f" {(needed + SPARE_BYTES) / 1e9:.1f} GB for {wanted.model}; fix: free some disk space"
            " or choose a smaller MODEL",
        )


@contextmanager
def _progress(blobs: Path, remote: Remote, before: int, say: Say) -> Iterator[None]:
    """Says how far the download is, once a second where that changed, by the files' sizes (the
    library's own bars differ between its versions and its two transports)."""
    ended = threading.Event()
    total = sum(remote.files.values())
    start = sum(map(_size, blobs.glob("*")))

    def watch() -> None:
        shown = -1
        while not ended.wait(PROGRESS_EVERY_S):
            done = min(before + sum(map(_size, blobs.glob("*"))) - start, total)
            percent = 100 * done // total if total else 100
            if percent != shown:
                say(f"{percent} % ({done / 1e9:.1f} of {total / 1e9:.1f} GB)")
                shown = percent

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
