"""What the turns of a conversation share, as a few bytes. Pure; read only where several engines
could take a request.

    prompt_cache_key, where the body has one
    system or instructions, and the messages up to the first of the user
    else the beginning of the prompt or input: a prompt that grows keeps that

Of messages the text counts, not how it is written: Anthropic's clients mark the newest message with
`cache_control`, and in the next turn the one after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

# Characters of a text that count, with its length; a picture inside a message is one.
MOST: Final = 65_536
# Bytes of a prompt that count: shared instructions of more look like one conversation, a first
# prompt of less changes with the next turn.
BEGINNING: Final = 512
_EMPTY: Final = frozenset({b"", b"null", b'""', b"[]"})


class Body(msgspec.Struct, frozen=True):
    """Fields by their names in the body, whatever their type; others are skipped unread."""

    prompt_cache_key: Any = None
    system: Any = None
    instructions: Any = None
    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()


class Turn(msgspec.Struct, frozen=True):
    """A message of any API."""

    role: Any = None
    content: Any = None


_body = msgspec.json.Decoder(Body).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_turn = msgspec.json.Decoder(Turn).decode
_encode = msgspec.json.encode


def conversation_of(body: bytes) -> bytes:
    """16 bytes, b"" where nothing is known."""
    try:
        found = _body(body)
        return _digest(_shared(found))
    except (msgspec.DecodeError, RecursionError):  # for the engine's own reader
        return b""


def _shared(found: Body) -> Iterator[str]:
    if found.prompt_cache_key:
        yield from _texts(found.prompt_cache_key)
        return
    yield from _texts(found.system)
    yield from _texts(found.instructions)
    said = _given(found.messages) or _given(found.input)
    opening = _opening(said)
    if not opening:
        yield (said or _given(found.prompt))[:BEGINNING].decode("utf-8", "replace")
    for turn in opening:
        yield from _texts(turn.role)
        yield from _texts(turn.content)


def _given(raw: msgspec.Raw) -> bytes:
    value = bytes(raw)
    return b"" if value in _EMPTY else value


def _opening(said: bytes) -> list[Turn]:
    """The messages up to the first of the user; none when there are no messages, or none is his."""
    if said.startswith(b'"'):  # an input that is one text is a message of the user
        return [Turn("user", msgspec.json.decode(said))]
    turns: list[Turn] = []
    if not said.startswith(b"["):
        return turns
    for raw in _list(said):
        if not bytes(raw).startswith(b"{"):
            return []
        turns.append(_turn(raw))
        if turns[-1].role == "user":
            return turns
    return []


def _texts(content: object) -> Iterator[str]:
    """The texts of a message's content, and of anything else its JSON."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (_text(part) for part in content)
    elif content is not None:
        yield _encode(content).decode()


def _text(part: object) -> str:
    """Of one part of a content."""
    if isinstance(part, dict):
        if isinstance(text := part.get("text"), str):
            return text
        part = {name: part[name] for name in part if name != "cache_control"}
    return _encode(part).decode()


def _digest(texts: Iterator[str]) -> bytes:
    """b"" when there are none."""
    mixed = blake2b(digest_size=16)
    any_text = False
    for text in texts:
        any_text = any_text or bool(text)
        mixed.update(b"%d:" % len(text) + text[:MOST].encode("utf-8", "replace"))
    return mixed.digest() if any_text else b""
