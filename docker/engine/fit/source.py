"""Where a model's config and the size of its weights come from: a folder, or the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fit import headers, hubread, packing
from fit.hubread import Hub

BESIDE = "hf_quant_config.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")  # the first kind that is there is enough


class SourceError(Exception):
    """A model that can't be read: one line with found, wanted and fix. `unreachable`: for want of
    a network, which says nothing about the model."""

    def __init__(self, line: str, *, unreachable: bool = False) -> None:
        super().__init__(line)
        self.unreachable = unreachable


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
            " folder in Hugging Face form; fix: correct the path"
        ) from error
    sizes = {file.name: file.stat().st_size for file in path.iterdir() if file.is_file()}
    wide = sum(headers.wide_bytes(path / name) for name in weight_files(sizes))
    config = packing.merged(parse(text, str(path)), _beside(path))
    return Source(path.name, config, weight_bytes(sizes), wide)


def _beside(path: Path) -> object:
    try:
        return json.loads((path / BESIDE).read_bytes())
    except (OSError, ValueError):
        return None


def hub(model: str, revision: str | None, client: Hub) -> Source:
    """A model on the hub: two or three small requests. Raises SourceError."""
    try:
        listing = client.listing(model, revision)
        config = parse(client.file(model, revision, "config.json"), model)
        if BESIDE in listing.sizes:
            beside = parse(client.file(model, revision, BESIDE), model)
            config = packing.merged(config, beside)
    except hubread.HubError as error:
        raise SourceError(str(error), unreachable=error.unreachable) from error
    return Source(model, config, weight_bytes(listing.sizes), listing.wide_bytes)


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


def weight_bytes(sizes: Mapping[str, int]) -> int | None:
    """Bytes of the files vLLM loads; None where there are none."""
    return sum(sizes[name] for name in weight_files(sizes)) or None


def weight_files(sizes: Mapping[str, int]) -> list[str]:
    """The files vLLM loads: of one format, without Mistral's second copy, top level."""
    for suffix in WEIGHTS:
        names = [n for n in sizes if n.endswith(suffix) and "/" not in n and sizes[n]]
        plain = [n for n in names if not n.startswith("consolidated")]
        if names:
            return plain or names
    return []
