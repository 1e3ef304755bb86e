"""When one of several engines is passed over although it may say that it is ready. Pure.

                     ┌──────────── RETURN good looks in a row, and its time is over ────────────┐
                     ▼                                                                          │
    in ──┬─ BROKEN answers in a row broke, and another engine works ─▶ out, "broke", for a time ┤
         └─ it refused a connection, or is not ready any more ───────▶ out, "gone" ─────────────┘

The time doubles with each ejection that follows soon after the last, from FIRST_S to LONGEST_S. An
engine that is back is on trial: until an answer of it is whole, one that breaks is enough. One that
was gone comes back as a new one.

Being out is only a preference: while no other engine can serve, one that is out and ready does. So
a single engine is used as soon as it is ready, and no outage is made here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

# One bad request in a quiet hour ejects nobody, and one that fails everywhere cannot: others count.
BROKEN: Final = 5
# One look may fall between two crashes.
RETURN: Final = 2
FIRST_S: Final = 1.0
LONGEST_S: Final = 30.0
# After so long without an ejection the next one is a first one again.
CALM_S: Final = 60.0

Cause = Literal["broke", "gone"]
CAUSES: Final[tuple[Cause, ...]] = ("broke", "gone")


@dataclass(frozen=True, slots=True)
class Standing:
    """What is remembered of one engine. Times in seconds, monotonic."""

    out: Cause | None = None
    ready: bool = False  # at the last look
    broken: int = 0  # answers in a row
    looks: int = 0  # good ones in a row
    times: int = 0  # ejections in a row
    until: float = 0.0  # out at least so long


def looked(before: Standing, ready: bool, now: float) -> Standing:
    """After a look at it, or a connection that it refused."""
    if not ready:  # what comes back is another process: nothing is held against it
        return Standing(out="gone" if before.ready or before.out else None)
    after = replace(before, ready=True, looks=min(before.looks + 1, RETURN))
    if before.out is None or after.looks < RETURN or now < before.until:
        return after
    return replace(after, out=None, broken=BROKEN - 1 if before.out == "broke" else 0)


def broke(before: Standing, others: bool, now: float) -> Standing:
    """After an answer that broke. `others`: another engine could serve in its place."""
    after = replace(before, broken=before.broken + 1)
    if after.broken < BROKEN or before.out is not None or not others:
        return after
    times = before.times if now - before.until < CALM_S else 0
    until = now + min(LONGEST_S, FIRST_S * 2**times)
    return replace(after, out="broke", looks=0, times=times + 1, until=until)


def worked(before: Standing) -> Standing:
    """After an answer that was whole."""
    return replace(before, broken=0) if before.broken else before


def could_serve(models: Iterable[str], others: Iterable[tuple[Standing, Iterable[str]]]) -> bool:
    """Whether one of the others is in, ready, and serves one of these models."""
    wanted = set(models)
    return any(one.ready and one.out is None and wanted.intersection(own) for one, own in others)
