"""Which API key our own questions (canary, chat) are asked with."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from stackctl.keys import DEFAULT_NAME, Record, load
from stackctl.layout import Layout
from stackctl.restrictions import LARGEST


@dataclass(frozen=True)
class Caller:
    """A key for our own questions; `model` is what a request with it has to name, if anything."""

    key: str
    model: str | None


def usable(layout: Layout, served: Sequence[str] = ()) -> Caller | None:
    """A key for our own canary and chat, stored in full, not expired and good for a model of
    `served`: one for any model and without limits before others, `default` before others.
    """
    now = datetime.datetime.now(datetime.UTC)
    records = [r for r in load(layout.api_keys) if isinstance(r.get("key"), str)]
    found = [(r, _model_of(r, served)) for r in records if not _is_over(r.get("expires"), now)]
    good = [(r, model) for r, model in found if not r.get("models") or model]
    good.sort(key=lambda pair: _reluctance(pair[0]))
    return Caller(str(good[0][0]["key"]), good[0][1]) if good else None


def _model_of(record: Record, served: Sequence[str]) -> str | None:
    """The name that a key with an allow-list may use for what is served."""
    allowed = record.get("models")
    if not isinstance(allowed, list):
        return None
    return next((name for name in served if name in allowed), None)


def _reluctance(record: Record) -> tuple[bool, bool, bool, bool]:
    limited = not LARGEST.keys().isdisjoint(record)
    return (
        bool(record.get("models")),
        limited,
        "expires" in record,
        record.get("name") != DEFAULT_NAME,
    )


def _is_over(expires: object, now: datetime.datetime) -> bool:
    """As the gateway has it: a plain date counts to its end, UTC."""
    if isinstance(expires, datetime.datetime):
        return expires.tzinfo is not None and now >= expires
    return isinstance(expires, datetime.date) and now.date() > expires
