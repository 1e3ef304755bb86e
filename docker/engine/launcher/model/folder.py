"""Is a folder a model vLLM can load: config, tokenizer and every weights file its index names."""

import json
from pathlib import Path

CONFIGS = ("config.json", "params.json")  # the second: Mistral's own layout
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
TOKENIZERS = ("tokenizer*", "*.tiktoken", "tekken.json", "vocab.*", "spiece.model")


def missing(folder: Path) -> str | None:
    """What `folder` lacks, in a few words; None when it can be loaded."""
    if not folder.is_dir():
        return "it is no folder"
    if not any(is_file(folder / name) for name in CONFIGS):
        return "no config.json"
    return _missing_weights(folder) or _missing_tokenizer(folder)


def is_file(path: Path) -> bool:
    """Whether `path` is a file with something in it (a cache's link may point nowhere)."""
    return path.is_file() and path.stat().st_size > 0


def _missing_weights(folder: Path) -> str | None:
    for index in (folder / name for name in INDEXES):
        if index.is_file():
            return _missing_shards(folder, index)
    if any(is_file(path) for pattern in WEIGHTS for path in folder.glob(pattern)):
        return None
    return "no weights (*.safetensors)"


def _missing_shards(folder: Path, index: Path) -> str | None:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"{index.name} is broken"
    absent = [name for name in names if not is_file(folder / str(name))]
    if not absent:
        return None
    return f"{len(absent)} of {len(names)} weights files are missing ({absent[0]} first)"


def _missing_tokenizer(folder: Path) -> str | None:
    found = any(is_file(path) for pattern in TOKENIZERS for path in folder.glob(pattern))
    return None if found else "no tokenizer"
