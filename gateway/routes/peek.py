"""The few fields of a JSON body that we look at; the body itself goes on byte for byte.

body ──▶ peek ──▶ Peek(model, stream, …)          400 when it is no JSON object
     └─▶ asking_for_usage ──▶ the same bytes, with stream_options.include_usage true
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.keys import Key
from gateway.upstream.fleet import check_allowed
from gateway.usage import BYTES_PER_TOKEN

# What an answer may take at most when the request does not say: the reservation for the limit of
# tokens a minute, corrected when the answer has come.
ASSUMED_ANSWER = 256

# What follows the brace tells UTF-8 from UTF-16, where it would be a zero.
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\s*(?=[\"}])")
# As vLLM's models read them, in any case.
_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_SPACE = re.compile(r"\s*")


class Peek(msgspec.Struct, frozen=True):
    """Fields by their names in the body, whatever their type; others are skipped unread."""

    model: Any = None
    stream: Any = None
    stream_options: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None

    @property
    def usage_wanted(self) -> bool:
        """The client itself asks for the usage chunk."""
        options = self.stream_options
        return isinstance(options, dict) and _true(options.get("include_usage"))

    @property
    def streams(self) -> bool:
        return _true(self.stream)

    def tokens(self, body_bytes: int) -> int:
        """An estimate of prompt and answer together, made before the engine has counted."""
        given = self.max_completion_tokens or self.max_tokens or self.max_output_tokens
        answer: int = given if _positive(given) else ASSUMED_ANSWER
        answers: int = self.n if _positive(self.n) else 1
        return body_bytes // BYTES_PER_TOKEN + answer * answers


_decode = msgspec.json.Decoder(Peek).decode


def peek(body: bytes) -> Peek:
    """Raises InvalidRequest for a body that is no JSON object."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _by_the_engines_reader(body)


def _by_the_engines_reader(body: bytes) -> Peek:
    """Python's own reader takes more: NaN, 1e999, UTF-16; so does vLLM, which uses it."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("The request body is not valid JSON.") from None
    if not isinstance(found, dict):
        raise InvalidRequest("The request body is not a JSON object.")
    return Peek(**{name: found.get(name) for name in Peek.__struct_fields__})


def asking_for_usage(body: bytes, options: object) -> bytes | None:
    """`body` with `stream_options.include_usage` true and every other byte as it was.

    `options`: the value of stream_options in it. None when that cannot be done: an encoding other
    than UTF-8, options that are no object, or a value that Python's reader, and so the engine's,
    refuses. A client that asks for no usage gets none in its chunks either, as from the engine.
    """
    start = _OBJECT.match(body)
    if start is None or not (options is None or isinstance(options, dict)):
        return None
    wanted = {**(options or {}), "include_usage": True}
    if _true(wanted.get("continuous_usage_stats")):
        wanted["continuous_usage_stats"] = False
    value = json.dumps(wanted).encode()
    try:
        span = _member(body, "stream_options")
    except (ValueError, RecursionError):
        return None
    if span is not None:
        return b"".join((body[: span[0]], value, body[span[1] :]))
    # At the end: of members with one name the last counts, and a name can be written with escapes.
    end = body.rindex(b"}")
    comma = b"," if start.end() < end else b""
    return b"".join((body[:end], comma, b'"stream_options":', value, body[end:]))


def check_model(key: Key, model: object) -> None:
    """For a key with an allow-list: the body names one of its models, or none: what the default is
    gets known when an engine is chosen. Raises ModelNotAllowed.
    """
    if key.models is not None and model is not None:
        check_allowed(model, key.models)


def wanted(model: object) -> str | None:
    """The name of a model, None for the default: what is empty names none, as vLLM has it, and
    what is no name is for the engine to refuse.
    """
    return model if isinstance(model, str) and model else None


def _member(body: bytes, name: str) -> tuple[int, int] | None:
    """Where the value of a member of the outermost object begins and ends; the last of several,
    as JSON readers take it.
    """
    if name.encode() not in body:
        return None
    text = body.decode("latin-1")  # a byte a character, whatever it means: only syntax matters
    decoder = json.JSONDecoder()
    at = text.index("{") + 1
    found = None
    while text[at := _skip(text, at)] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = decoder.raw_decode(text, start)
        if key == name:
            found = start, at
        at = _skip(text, at)
        at += text[at] == ","
    return found


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _true(value: object) -> bool:
    return value == 1 or (isinstance(value, str) and value.lower() in _TRUE)
