"""What requests are counted in: this process alone, or all workers through Valkey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.admission import Admission, Slots
from gateway.bound import UNKNOWN, AutoBound
from gateway.health import Looked, unwatched
from gateway.limits.limiter import Limiter
from gateway.limits.local import LocalLimiter
from gateway.settings import Settings
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet

if TYPE_CHECKING:
    from gateway.shared.link import Link


@dataclass(frozen=True)
class State:
    """`looked` hears of each look at an engine, `busy` of an engine that says it has too many
    requests: both move the bound, unless it is set.
    """

    admission: Slots
    limiter: Limiter
    looked: Looked
    busy: Callable[[Engine], None]
    link: Link | None = None


def build_state(settings: Settings, fleet: Fleet, worker: str | None) -> State:
    """`worker`: the name of this one of several, None for the only one."""
    slots, room = settings.max_concurrency or UNKNOWN, settings.queue_size

    def phase() -> str:
        return fleet.phase

    if worker is None:
        admission = Admission(slots, room, phase)
        fleet.follow(admission.turn)
        return State(admission, LocalLimiter(), *_bound(settings, admission))
    # Only here: one worker has no use for Valkey's client and does not load it.
    from gateway.limits.shared import SharedLimiter
    from gateway.shared.admission import SharedAdmission
    from gateway.shared.link import Link

    link = Link(settings.valkey_url, worker)
    shared = SharedAdmission(link, slots, room, settings.workers, phase)
    fleet.follow(shared.turn)
    limiter = SharedLimiter(link, LocalLimiter(), settings.workers)
    link.add(shared)
    link.add(limiter)
    return State(shared, limiter, *_bound(settings, shared), link)


def _bound(settings: Settings, admission: Slots) -> tuple[Looked, Callable[[Engine], None]]:
    if settings.max_concurrency is not None:
        return unwatched, _unbothered
    bound = AutoBound(admission, settings.workers)
    return bound.look, bound.refused


def _unbothered(_: Engine) -> None:
    """A bound that was set stays as it is."""
