"""Tokens of an answer, by the engine's own count: found in its bytes, without a model of the body.

OpenAI       "usage": {"prompt_tokens": 5, "completion_tokens": 7, …}
Responses    "usage": {"input_tokens": 5, "output_tokens": 7, …}
Anthropic    the same; message_start has the first, message_delta the second
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

# Inside a JSON string the quotes would be escaped, so text that looks like this is no match.
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_decode = json.JSONDecoder().raw_decode
# A usage object takes some 100 bytes, with details some 500.
_LENGTH = 2048
# Longer than the beginning of a usage object.
_CARRY = 16
# Characters a token has in English; enough for what nobody counted.
BYTES_PER_TOKEN = 4


@dataclass(slots=True)
class Usage:
    """Tokens of one request. None: not told."""

    prompt: int | None
    completion: int | None

    def over(self, earlier: Usage | None) -> Usage:
        """This, with what an earlier one told and this one did not."""
        if earlier is None:
            return self
        prompt = self.prompt if self.prompt is not None else earlier.prompt
        completion = self.completion if self.completion is not None else earlier.completion
        return Usage(prompt, completion)


def usage_in(data: bytes) -> Usage | None:
    """The last usage object in `data`, None when there is none."""
    starts = [found.end() - 1 for found in _USAGE.finditer(data)]
    return _read(data[starts[-1] : starts[-1] + _LENGTH]) if starts else None


class UsageFinder:
    """Looks for the usage in a plain body as it passes; keeps a few kilobytes of it."""

    __slots__ = ("_recent", "_seen")

    def __init__(self) -> None:
        self._recent = b""
        self._seen: bytes | None = None  # the last usage object, and what follows

    def feed(self, piece: bytes) -> None:
        if self._seen is not None and len(self._seen) < _LENGTH:
            self._seen += piece[:_LENGTH]
        data = self._recent + piece if self._recent else piece
        if b'"usage"' in data:  # far quicker than the pattern, and mostly not there
            for found in _USAGE.finditer(data):
                start = found.end() - 1
                self._seen = data[start : start + _LENGTH]
        self._recent = data[-_CARRY:]

    def usage(self) -> Usage | None:
        return _read(self._seen) if self._seen else None


def _read(text: bytes) -> Usage | None:
    """The object at the start of `text`; numbers that are none count as not told."""
    try:
        found, _ = _decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    prompt = found.get("prompt_tokens", found.get("input_tokens"))
    completion = found.get("completion_tokens", found.get("output_tokens"))
    return Usage(_count(prompt), _count(completion))


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 1 << 40 else None  # type: ignore[operator, return-value]
