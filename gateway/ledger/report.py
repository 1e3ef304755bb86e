"""What the ledger holds, by key, model or day: rows from the database, as a table or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, func, select

from gateway.ledger.tables import COUNTS, USAGE, is_there

By = Literal["key", "model", "day"]
DAY = 86_400
# The client got its answer, or did not want it any more.
FINE = frozenset({"ok", "client_left", "client_stalled"})
HEADINGS = ("requests", "prompt tokens", "completion tokens", "estimated", "failures")


@dataclass(frozen=True)
class Filters:
    """What counts. Times: Unix seconds, `until` is the first one that does not count."""

    since: int | None = None
    until: int | None = None
    key: str | None = None
    model: str | None = None


@dataclass
class Line:
    """The sums of one key, model or day. `estimated_requests`: of `requests`, those whose tokens
    were counted here, since the engine's own count never came."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated_requests: int = 0
    failures: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: str, counts: Sequence[int]) -> None:
        self.requests += counts[0]
        self.prompt_tokens += counts[1]
        self.completion_tokens += counts[2]
        self.estimated_requests += counts[3]
        self.failures += 0 if outcome in FINE else counts[0]
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + counts[0]


Lines = dict[str, Line]  # by name, sorted


def read(connection: Connection, by: By, filters: Filters) -> Lines:
    """Sums of a ledger; a database that has none yet holds nothing. Raises SchemaError."""
    if not is_there(connection):
        return {}
    lines: Lines = {}
    for row in connection.execute(query(by, filters)).all():
        group, outcome, *counts = tuple(row)
        name = _day(int(group)) if by == "day" else str(group)
        lines.setdefault(name, Line()).add(str(outcome), [int(count) for count in counts])
    return dict(sorted(lines.items()))


def query(by: By, filters: Filters) -> Select[Any]:
    hour = USAGE.c.hour
    group: ColumnElement[object] = hour - hour % DAY if by == "day" else USAGE.c[by]
    sums = [func.sum(USAGE.c[name]) for name in COUNTS]
    wanted = select(group, USAGE.c.outcome, *sums).group_by(group, USAGE.c.outcome)
    if filters.since is not None:
        wanted = wanted.where(hour >= filters.since)
    if filters.until is not None:
        wanted = wanted.where(hour < filters.until)
    if filters.key is not None:
        wanted = wanted.where(USAGE.c.key == filters.key)
    if filters.model is not None:
        wanted = wanted.where(USAGE.c.model == filters.model)
    return wanted


def total(lines: Iterable[Line]) -> Line:
    whole = Line()
    for line in lines:
        for name in ("requests", "prompt_tokens", "completion_tokens", "estimated_requests"):
            setattr(whole, name, getattr(whole, name) + getattr(line, name))
        whole.failures += line.failures
        for outcome, count in line.outcomes.items():
            whole.outcomes[outcome] = whole.outcomes.get(outcome, 0) + count
    return whole


def as_json(by: By, lines: Lines) -> str:
    rows = [{by: name, **asdict(line)} for name, line in lines.items()]
    return json.dumps({"by": by, "rows": rows, "total": asdict(total(lines.values()))}, indent=2)


def as_table(by: By, lines: Lines) -> str:
    """Names left, numbers right, and the sum of several rows below them."""
    if not lines:
        return "no usage in the ledger for that"
    shown = [(name, *_numbers(line)) for name, line in lines.items()]
    if len(lines) > 1:
        shown.append(("total", *_numbers(total(lines.values()))))
    cells = [(by, *HEADINGS), *shown]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_aligned(row, widths) for row in cells)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join((row[0].ljust(widths[0]), *numbers))


def _numbers(line: Line) -> tuple[str, ...]:
    counts = (line.requests, line.prompt_tokens, line.completion_tokens)
    return tuple(map(str, (*counts, line.estimated_requests, line.failures)))


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
