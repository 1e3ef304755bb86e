"""The header of a safetensors file: its tensors' types and places.

8 bytes with the length of a JSON object, little endian, then the object (safetensors' format)."""

from __future__ import annotations

import json
from pathlib import Path

LONGEST = 100 * 2**20  # bytes of a header, safetensors' own limit


def wide_bytes(path: Path) -> int:
    """Bytes of float32 tensors, which vLLM loads as 16 bits; 0 where the file does not tell."""
    if path.suffix != ".safetensors":
        return 0
    return sum(_length(tensor) for tensor in _tensors(path) if tensor.get("dtype") == "F32")


def _tensors(path: Path) -> list[dict[str, object]]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            found = json.loads(file.read(length)) if 0 < length <= LONGEST else {}
    except (OSError, ValueError):
        return []
    values = found.values() if isinstance(found, dict) else ()
    return [value for value in values if isinstance(value, dict)]


def _length(tensor: dict[str, object]) -> int:
    match tensor.get("data_offsets"):
        case [int(begin), int(end)]:
            return end - begin
    return 0
