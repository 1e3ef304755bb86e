"""How many requests may be at the engines, when nobody set GATEWAY_MAX_CONCURRENCY.

An engine runs at most its max_num_seqs, and fewer while its KV cache is full. What it cannot run
waits inside it, first come first served: unfair between keys, and out of reach. So the bound
follows what the engine really runs, and the queue builds up here.

    waiting in the engine    what it means            slots of that engine
    ─────────────────────    ─────────────────────    ───────────────────────────────────────────
    none                     it could take more       a few more each look, up to max_num_seqs
    a few                    full, and never idle     stay
    many, and it runs more   it takes them in         stay
    many, twice in a row     it is full               what it runs, and a few
    it says 503              it is full               what is at it without the refused one

"A few" is the same number up and down, so a step up never leads to a step down: see `few`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.admission import Slots
from gateway.upstream.engine import Engine, View

# vLLM's own max_num_seqs on the largest GPUs; nothing tells it when it was not set. A smaller
# engine is found out by its waiting.
UNKNOWN: Final = 1024
# A burst is taken in within a look; what still waits at the next one waits for room.
LOOKS: Final = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at an engine. None: it did not say."""

    most: int | None = None  # its max_num_seqs
    running: int | None = None
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """One engine's part of the bound. `full`: looks in a row at which it was full."""

    slots: int = UNKNOWN
    most: int = UNKNOWN
    running: int = 0
    full: int = 0


def few(count: int) -> int:
    """An eighth, at least 4: keeps an engine busy between two of its steps."""
    return max(4, count // 8)


def step(before: Share, seen: Seen) -> Share:
    """Pure: the share after a look at an engine that serves. Never below `few`, or `most`."""
    share = limited(before, seen.most)
    if seen.running is None or seen.waiting is None:
        return replace(share, full=0)
    spare = few(seen.running)
    growing = seen.running > before.running + few(before.running) // 2
    share = replace(share, running=seen.running)
    if seen.waiting == 0:
        return replace(share, full=0, slots=min(share.most, share.slots + few(share.slots)))
    if seen.waiting <= spare or growing:
        return replace(share, full=0)
    if share.full + 1 < LOOKS:
        return replace(share, full=share.full + 1)
    return replace(share, full=LOOKS, slots=min(share.slots, seen.running + spare))


def limited(share: Share, most: int | None) -> Share:
    """With that max_num_seqs. A share that was not lowered by the engine's waiting follows it."""
    if most is None or most == share.most:
        return share
    slots = most if share.slots == share.most else min(share.slots, most)
    return replace(share, most=most, slots=slots)


def refused(share: Share, at_engine: int) -> Share:
    """Pure: after the engine refused one of `at_engine` requests."""
    least = min(share.most, few(0))
    return replace(share, slots=max(least, min(share.slots, at_engine - 1)))


def seen_in(status: Mapping[str, Any] | None) -> Seen:
    """What a launcher's status says, as far as it makes sense."""
    told = status or {}
    most, running, waiting = (
        value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None
        for value, least in (
            (told.get("max_num_seqs"), 1),
            (told.get("running"), 0),
            (told.get("waiting"), 0),
        )
    )
    return Seen(most, running, waiting)


class AutoBound:
    """Keeps the slots of `admission` at the sum over the engines that take requests; while none
    does, of all. `workers`: processes that use the engines about evenly; slots, like what an engine
    says of itself, are for all of them.
    """

    def __init__(self, admission: Slots, workers: int = 1) -> None:
        self._admission = admission
        self._workers = workers
        self._shares: dict[Engine, Share] = {}
        self._ready: set[Engine] = set()

    def look(self, engine: Engine, view: View) -> None:
        """After each probe. An engine that is not ready begins anew when it is."""
        seen = seen_in(view.status)
        share = self._shares.get(engine, Share())
        if view.ready:
            self._ready.add(engine)
            share = step(share, seen)
        else:
            self._ready.discard(engine)
            share = limited(Share(share.most, share.most), seen.most)
        self._set(engine, share)

    def refused(self, engine: Engine) -> None:
        """The engine said that it takes no more; `engine.in_flight` still counts that request."""
        share = self._shares.get(engine, Share())
        self._set(engine, refused(share, engine.in_flight * self._workers))

    def _set(self, engine: Engine, share: Share) -> None:
        self._shares[engine] = share
        taking = [each for each in self._ready if not each.ejected]
        slots = sum(self._shares[each].slots for each in taking or self._ready or self._shares)
        if slots != self._admission.slots:
            self._admission.resize(slots)
