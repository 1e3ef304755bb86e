"""GET /metrics: for Prometheus, without a key. Only the stack's own networks reach it: nginx, the
one way in from outside, answers 404 (nginx/templates/server/locations.conf.template).
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import Receive, Scope, Send

from gateway.admission import Slots
from gateway.ledger.ledger import Ledger
from gateway.log import Record
from gateway.metrics import Counted, Metrics, Readings, UpstreamReading
from gateway.routes.edge import Route, reply
from gateway.upstream.ejector import Ejector
from gateway.upstream.fleet import Fleet

PATH = "/metrics"


@dataclass(frozen=True)
class MetricsPage:
    """ASGI endpoint."""

    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["record"]
        page = await self.metrics.page()
        await reply(200, page, record, send, CONTENT_TYPE_PLAIN_0_0_4.encode())


def measured(
    routes: list[Route], fleet: Fleet, admission: Slots, ejector: Ejector, ledger: Ledger | None
) -> tuple[list[Route], Metrics]:
    """The routes and one more, and what counts requests to all of them."""
    table = [Counted(route.path, tuple(route.methods), route.probe) for route in routes]
    table.append(Counted(PATH, ("GET",), probe=True))
    metrics = Metrics(table, lambda: readings(fleet, admission, ejector, ledger))
    return [*routes, Route(PATH, {"GET": MetricsPage(metrics)}, probe=True)], metrics


def readings(fleet: Fleet, admission: Slots, ejector: Ejector, ledger: Ledger | None) -> Readings:
    """What goes on right now."""
    engines = (
        UpstreamReading(
            each.index,
            each.view.ready,
            each.in_flight,
            each.ejected,
        )
        for each in fleet.engines
    )
    return Readings(
        admission.in_use,
        admission.waiting,
        admission.slots,
        tuple(engines),
        ledger.pending if ledger else 0,
        ledger.failures if ledger else 0,
        ejector.totals,
    )
