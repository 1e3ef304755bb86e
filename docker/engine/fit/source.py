"""Where a model's config and the size of its weights come from: a folder, or the hub."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fit import headers, hubread, packing
from fit.hubread import Hub

BESIDE = "hf_quant_config.json"
INDEX = "model.safetensors.index.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")  # the first kind that is there is enough


class SourceError(Exception):
    """A model that can't be read: one line with found, wanted and fix. `untold`: for want of a
    network, or of a config in Hugging Face form; that does not say that no engine runs it."""

    def __init__(self, line: str, *, untold: bool = False) -> None:
        super().__init__(line)
        self.untold = untold


@dataclass(frozen=True)
class Source:
    """`file_bytes`: of the weights vLLM would load, of them `wide_bytes` as float32; None where
    there is only a config."""

    name: str
    config: Mapping[str, Any]
    file_bytes: int | None
    wide_bytes: int = 0


def folder(path: Path) -> Source:
    """A local model. Raises SourceError."""
    try:
        text = (path / "config.json").read_bytes()
    except OSError as error:
        raise SourceError(
            f"MODEL: found no readable {path}/config.json ({error.strerror}); wanted a model's"
            " folder in Hugging Face form; fix: correct the path",
            untold=path.is_dir(),
        ) from error
    sizes = {file.name: file.stat().st_size for file in path.iterdir() if file.is_file()}
    files = weight_files(sizes, indexed(_json(path / INDEX)))
    wide = sum(headers.wide_bytes(path / name) for name in files)
    config = packing.merged(parse(text, str(path)), _json(path / BESIDE))
    return Source(path.name, config, _bytes(sizes, files), wide)


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def hub(model: str, revision: str | None, client: Hub) -> Source:
    """A model on the hub: two to four small requests. Raises SourceError."""
    try:
        listing = client.listing(model, revision)
        config = parse(client.file(model, revision, "config.json"), model)
        files = weight_files(listing.sizes)
        if INDEX in listing.sizes and not is_one_set(files):
            index = parse(client.file(model, revision, INDEX), model)
            files = weight_files(listing.sizes, indexed(index))
        if BESIDE in listing.sizes:
            beside = parse(client.file(model, revision, BESIDE), model)
            config = packing.merged(config, beside)
    except hubread.HubError as error:
        raise SourceError(str(error), untold=error.unreachable) from error
    return Source(model, config, _bytes(listing.sizes, files), listing.wide_bytes)


def parse(text: bytes, name: str) -> Mapping[str, Any]:
    """A config's object. Raises SourceError."""
    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise SourceError(
            f"MODEL: found a config.json of {name} that is no JSON object; wanted a model in"
            " Hugging Face form; fix: fetch it again, or choose another MODEL"
        )
    return config


def _bytes(sizes: Mapping[str, int], files: list[str]) -> int | None:
    return sum(sizes[name] for name in files) or None


def weight_files(sizes: Mapping[str, int], named: frozenset[str] = frozenset()) -> list[str]:
    """The files vLLM loads: of one format, without Mistral's second copy, top level; where an index
    names its files, no others (weight_utils.py filter_duplicate_safetensors_files)."""
    for suffix in WEIGHTS:
        names = [n for n in sizes if n.endswith(suffix) and "/" not in n and sizes[n]]
        plain = [n for n in names if not n.startswith("consolidated")]
        if suffix == ".safetensors" and named & {*names}:
            return [name for name in names if name in named]
        if names:
            return plain or names
    return []


def indexed(index: object) -> frozenset[str]:
    """The files that an index of safetensors names."""
    found = index.get("weight_map") if isinstance(index, Mapping) else None
    return frozenset(map(str, found.values())) if isinstance(found, Mapping) else frozenset()


def is_one_set(files: list[str]) -> bool:
    """One file, or the numbered parts of one set: an index (megabytes) would tell nothing new."""
    parts = [re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.safetensors", name) for name in files]
    kinds = {(part[1], int(part[2])) for part in parts if part}
    return len(files) == 1 or (all(parts) and {count for _, count in kinds} == {len(files)})
