"""Which engine a request goes to. Pure: what is known of engines in, engines out.

    directory   engines ─▶ who serves which name, and what no name means
    choose      engines that are ready, a conversation ─▶ one of them

The turns of a conversation go to one engine, whose prefix cache has all but the last of them. No
table remembers that: each conversation puts the engines in an order of its own (rendezvous hashing:
https://doi.org/10.1109/90.663936), so gateways and workers agree without a word, and an engine that
leaves takes only its own conversations along. One that is far busier than the others is passed over
(bounded loads: https://arxiv.org/abs/1608.01350), or a prompt that all share would fill one engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from gateway.upstream.engine import Engine

# Every engine has this name beside its own, whatever it serves.
DEFAULT: Final = "default"
# How much busier than the mean an engine may be before it is passed over; the few let a quiet
# fleet keep its conversations together.
SHARE: Final = 1.25
FEW: Final = 4


@dataclass(frozen=True, slots=True)
class Directory:
    """Who serves what. `serving`: by name, and by None for the default; engines that are not ready
    are there with what they served last.
    """

    ready: tuple[Engine, ...] = ()
    default: str | None = None
    serving: Mapping[str | None, tuple[Engine, ...]] = field(default_factory=dict)


def directory(engines: Sequence[Engine]) -> Directory:
    """The default is the model of the first engine that stands. The name `default`, which engines
    with different models share, means the same.
    """
    serving: dict[str | None, tuple[Engine, ...]] = {}
    named = [engine for engine in engines if engine.view.names and not engine.left]
    for engine in named:
        for name in engine.view.names:
            serving[name] = (*serving.get(name, ()), engine)
    first = next((engine for engine in named if engine.stands), named[0] if named else None)
    if first is None:
        return Directory()
    default = first.view.names[0]
    serving[None] = serving[default]
    if first in serving.get(DEFAULT, ()):
        serving[DEFAULT] = tuple(each for each in serving[DEFAULT] if each in serving[None])
    return Directory(tuple(each for each in engines if each.view.ready), default, serving)


def choose(ready: Sequence[Engine], conversation: bytes = b"") -> Engine | None:
    """The first in the conversation's order that is not far busier than the others; without one
    that with the fewest requests in flight, the first of several. One that is ejected only where
    there is no other.
    """
    ready = [engine for engine in ready if not engine.ejected] or ready
    if len(ready) < 2:
        return ready[0] if ready else None
    if not conversation:
        return min(ready, key=lambda engine: engine.in_flight)
    most = bound([engine.in_flight for engine in ready])
    return next(each for each in ranked(ready, conversation) if each.in_flight < most)


def bound(in_flight: Sequence[int]) -> float:
    """What an engine may have in flight and still be chosen; above the mean, so one always may."""
    return SHARE * sum(in_flight) / len(in_flight) + FEW


def ranked(engines: Sequence[Engine], conversation: bytes) -> list[Engine]:
    """The engines in the order of that conversation, whatever order they come in."""
    return sorted(engines, key=lambda engine: weight(engine.url, conversation), reverse=True)


def weight(url: str, conversation: bytes) -> bytes:
    """A number that says nothing about either, as bytes."""
    return blake2b(url.encode(), key=conversation, digest_size=8).digest()
