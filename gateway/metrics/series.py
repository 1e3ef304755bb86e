"""Which series a request counts in. Labels come from fixed sets only.

A label never holds what a client wrote: a path is a route of the table or `unmatched`, a method is
one of METHODS or `other`, a status is a known one or its class. Key names come from the operator's
file and models are those that are served; both can change while we run, so they have a bound too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Generic, TypeVar

from prometheus_client import Counter

from gateway.errors import GatewayError, Unexpected, UpstreamFailed, UpstreamTimeout
from gateway.log import Outcome
from gateway.metrics.families import Families
from gateway.metrics.tally import BulkHistogram, Spread, Sum

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

METHODS = frozenset(("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"))
OTHER = "other"
UNMATCHED = "unmatched"
# In durations, for all that did not end well: a histogram for each route and outcome would be
# thousands of series, most of them never used.
ANY = "any"
# The status that an outcome mostly has: these series are there before their first request.
USUAL: Mapping[Outcome, int] = {
    "ok": 200,
    "rejected": 503,
    "client_left": 200,
    "client_stalled": 200,
    "truncated": 200,
    "upstream_error": 502,
    "drained": 200,
    "internal_error": 500,
}
# Pairs of a key and a model, far above what there are; past it they count as `other`. Also what one
# cache keeps.
MOST = 2000

_STATUSES = frozenset(int(status) for status in HTTPStatus)

Ending = tuple[str, str, int | None, str]  # route, method, status, outcome
Caller = tuple[str, str, str]  # key, model, outcome


class Cache(dict[K, V], Generic[K, V]):
    """Makes what is missing, and keeps the first MOST."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        made = self._make(key)
        if len(self) < MOST:
            self[key] = made
        return made


@dataclass(frozen=True, slots=True)
class Counted:
    """A route of the table. `probe`: it is asked for its status all the time."""

    path: str
    methods: Collection[str]
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What a request with this ending counts in. Of a probe nobody asks how long it took."""

    requests: Sum
    duration: Spread | None


@dataclass(frozen=True, slots=True)
class Used:
    """What a request of this caller counts in."""

    requests: Sum
    prompt: Sum
    completion: Sum


class Series:
    """Each series that is in use, made once; looking one up is one dictionary access.

    Whose labels are few are there from the start, so that rate() sees their first event too.
    """

    def __init__(self, families: Families, routes: Sequence[Counted]) -> None:
        self._families = families
        self._routes = frozenset(route.path for route in routes)
        self._probes = frozenset(route.path for route in routes if route.probe)
        self._pairs: set[tuple[str, str]] = set()  # of key and model
        self._sums: dict[tuple[Counter, tuple[str, ...]], Sum] = {}
        self._spreads: dict[tuple[BulkHistogram, tuple[str, ...]], Spread] = {}
        self.ended: Cache[Ending, Ended] = Cache(self._ended)
        self.used: Cache[Caller, Used] = Cache(self._used)
        self.queue = self._spread(families.queue)
        self.first_token = self._spread(families.first_token)
        self.per_token = self._spread(families.per_token)
        self.resent = self._sum(families.resent)
        self.received = self._sum(families.received)
        self.sent = self._sum(families.sent)
        self.events = self._sum(families.events)
        self.estimated = self._sum(families.estimated)
        self.rejected = {
            reason: self._sum(families.rejected, reason) for reason in sorted({*codes(), OTHER})
        }
        self.ledger_failures = self._sum(families.ledger_failures)
        for ending in usual(routes):
            self.ended[ending]
        for total in self._sums.values():
            total.start()
        for spread in self._spreads.values():
            spread.start()

    def flush(self) -> None:
        """Hand over what has come together since the last time."""
        for total in self._sums.values():
            total.flush()
        for spread in self._spreads.values():
            spread.flush()

    def _ended(self, ending: Ending) -> Ended:
        path, method, status, outcome = ending
        route = path if path in self._routes else UNMATCHED
        families = self._families
        return Ended(
            self._sum(families.requests, route, method, status_label(status), outcome),
            self._duration(route, outcome),
        )

    def _duration(self, route: str, outcome: str) -> Spread | None:
        if route in self._probes:
            return None
        return self._spread(self._families.duration, route if outcome == "ok" else ANY, outcome)

    def _used(self, caller: Caller) -> Used:
        key, model = self._pair(caller[0], caller[1])
        outcome = caller[2]
        families = self._families
        return Used(
            self._sum(families.key_requests, key, outcome),
            self._sum(families.prompt_tokens, key, model),
            self._sum(families.completion_tokens, key, model),
        )

    def _pair(self, key: str, model: str) -> tuple[str, str]:
        if len(self._pairs) >= MOST and (key, model) not in self._pairs:
            return OTHER, OTHER
        self._pairs.add((key, model))
        return key, model

    def _sum(self, family: Counter, *labels: str) -> Sum:
        make = partial(family.labels, *labels) if labels else lambda: family
        return self._sums.setdefault((family, labels), Sum(make))

    def _spread(self, family: BulkHistogram, *labels: str) -> Spread:
        make = partial(family.labels, *labels) if labels else lambda: family
        return self._spreads.setdefault((family, labels), Spread(family.edges, make))


def usual(routes: Sequence[Counted]) -> Iterator[Ending]:
    """What will happen on each route: it is answered; and where an engine is asked, all else."""
    for route in routes:
        for method in route.methods:
            yield route.path, method, 200, "ok"
        if "POST" in route.methods:
            yield from ((route.path, "POST", status, outcome) for outcome, status in USUAL.items())


def status_label(status: int | None) -> str:
    """`none`: the client left before there was one."""
    if status is None:
        return "none"
    return str(status) if status in _STATUSES else f"{status // 100}xx"


def codes(error: type[GatewayError] = GatewayError) -> set[str]:
    """The code of each error that refuses a request before an engine saw it."""
    if error in {UpstreamFailed, UpstreamTimeout, Unexpected}:
        return set()
    own = {error.code} if hasattr(error, "code") else set()
    return own.union(*(codes(each) for each in error.__subclasses__()))
