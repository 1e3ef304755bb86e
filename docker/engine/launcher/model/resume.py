"""Large files of a model, continued where an earlier download was cut, into the hub's own cache.

huggingface_hub since 1.x begins a cut file anew, and loses up to a shard of gigabytes for each
worker. So the large files are put into its cache by its own `http_get`, which can continue; then
`snapshot_download` finds them there and adds the rest.
"""

import hashlib
import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from launcher.model.huberrors import Wanted

SUFFIX = ".part"
LEAST_BYTES = 10**6  # smaller ones are not worth continuing
MOST_BYTES = 40 * 10**9  # the hub serves larger files over its other transport alone
WORKERS = 4  # files at a time; more helps little and makes rate limits likelier


def fill(wanted: Wanted, blobs: Path, commit: str, files: dict[str, int]) -> None:
    """Download the large ones of `files` into `blobs`. Raises huggingface_hub's errors."""
    blobs.mkdir(parents=True, exist_ok=True)
    for stale in blobs.glob("*.incomplete"):  # of a run that was killed; nobody continues them
        stale.unlink(missing_ok=True)
    large = [name for name, size in files.items() if LEAST_BYTES <= size <= MOST_BYTES]
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(_fill_one, wanted, blobs, commit, name) for name in large]:
            done.result()


def _fill_one(wanted: Wanted, blobs: Path, commit: str, name: str) -> None:
    library: Any = importlib.import_module("huggingface_hub")
    token = wanted.token or False
    url = library.hf_hub_url(wanted.model, name, revision=commit, endpoint=wanted.endpoint)
    about = library.get_hf_file_metadata(url, token=token)
    if not about.etag or (blobs / about.etag).exists():
        return
    headers = library.utils.build_hf_headers(token=token)
    if urlsplit(about.location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)  # the file lies on another host, which is not to see it
    part = blobs / f"{about.etag}{SUFFIX}"
    for _ in range(2):  # a continued file that turns out wrong is fetched once more, from its start
        _continue(part, about.location, headers, about.size)
        if _is_right(part, about.etag):
            part.replace(blobs / about.etag)
            return
        part.unlink()
    raise OSError(f"{name} came damaged twice")


def _continue(part: Path, url: str, headers: dict[str, str], size: int) -> None:
    http_get = importlib.import_module("huggingface_hub.file_download").http_get
    part.touch()
    with part.open("r+b") as file:
        have = file.seek(0, 2)
        if have > size:
            have = file.truncate(0)
            file.seek(0)
        http_get(url, file, resume_size=have, headers=headers, expected_size=size)


def _is_right(part: Path, etag: str) -> bool:
    """Whether the content is what its name says; the hub names large files by their SHA-256."""
    if len(etag) != 64:
        return True
    with part.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == etag
