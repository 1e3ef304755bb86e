"""From the numbers to tables: as text, and as a file with everything that was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.gateway.stats import Numbers, Spread, against, differences, of, spread

BASE = "byte copy"

Relation = tuple[str, str, Callable[[Numbers, str], list[float]]]


@dataclass(frozen=True)
class Measure:
    """One thing that was measured. `form`: a format of one number."""

    title: str
    metric: str
    form: str


@dataclass(frozen=True)
class Goal:
    """What our gateway wants of one measure, as `wanted` at most or at least."""

    title: str
    values: Sequence[float]
    wanted: float
    at_most: bool
    form: str = ".2f"


def measures(streams: Sequence[int]) -> list[Measure]:
    return [
        *(Measure(f"CPU-s per 100k chunks, {n} streams", f"cpu_{n}", ".2f") for n in streams),
        *(Measure(f"chunks/s, {n} streams", f"rate_{n}", ",.0f") for n in streams),
        Measure("unary req/s, c=64", "unary", ",.0f"),
        Measure("CPU µs per request", "unary_cpu_us", ".0f"),
        Measure("p50 ms, c=1", "p50_ms", ".3f"),
        Measure("1 MB bodies, req/s", "bodies", ",.0f"),
        Measure("cancels seen, mid-stream", "cancels_mid", ".0f"),
        Measure("cancels seen, before the first chunk", "cancels_before", ".0f"),
        *(Measure(f"RSS MB, {n} streams", f"rss_{n}", ".0f") for n in streams),
    ]


def medians(numbers: Numbers, streams: Sequence[int]) -> str:
    """The table of medians, one column a contender."""
    rows = [["medians", *numbers]]
    for measured in measures(streams):
        cells = [_middle(of(numbers, name, measured.metric), measured.form) for name in numbers]
        rows += [[measured.title, *cells]] if any(cells) else []
    return markdown(rows)


def relative(numbers: Numbers, streams: Sequence[int]) -> str:
    """Ratios within each repeat: median (lowest to highest)."""
    names = [name for name in numbers if name != "direct"]
    rows = [["within each repeat", *names]]
    for title, form, values in relations(streams):
        cells = [_span(spread(values(numbers, name)), form) for name in names]
        rows += [[title, *cells]] if any(cells) else []
    return markdown(rows)


def relations(streams: Sequence[int]) -> list[Relation]:
    """Title, form and values of each ratio."""

    def to(base: str, metric: str) -> Callable[[Numbers, str], list[float]]:
        return lambda numbers, name: against(numbers, name, metric, base)

    return [
        *((f"CPU, {n} streams / {BASE}", ".2f", to(BASE, f"cpu_{n}")) for n in streams),
        *((f"chunks/s, {n} streams / direct", ".3f", to("direct", f"rate_{n}")) for n in streams),
        (f"unary req/s / {BASE}", ".2f", to(BASE, "unary")),
        (f"unary CPU / {BASE}", ".2f", to(BASE, "unary_cpu_us")),
        ("added p50, ms", ".3f", added_p50),
        (f"added p50 / {BASE}", ".2f", p50_ratio),
        ("1 MB bodies / direct", ".2f", to("direct", "bodies")),
        (f"1 MB bodies / {BASE}", ".2f", to(BASE, "bodies")),
    ]


def added_p50(numbers: Numbers, name: str) -> list[float]:
    own, direct = of(numbers, name, "p50_ms"), of(numbers, "direct", "p50_ms")
    return differences(own, direct) if len(own) == len(direct) else []


def p50_ratio(numbers: Numbers, name: str) -> list[float]:
    own, base = added_p50(numbers, name), added_p50(numbers, BASE)
    return [a / b for a, b in zip(own, base, strict=True) if b > 0] if len(own) == len(base) else []


def goals(numbers: Numbers) -> str:
    """Our gateway against what it is meant to reach."""
    ours = "gateway"
    cpu = {64: 0.80, 512: 0.70}
    wanted = [
        *(
            Goal(f"CPU at {n} streams / {BASE}", against(numbers, ours, f"cpu_{n}", BASE), w, True)
            for n, w in cpu.items()
        ),
        Goal(
            "chunks/s at 512 streams / direct",
            against(numbers, ours, "rate_512", "direct"),
            0.98,
            False,
            ".3f",
        ),
        Goal(f"unary req/s / {BASE}", against(numbers, ours, "unary", BASE), 1.2, False),
        Goal(f"added p50 / {BASE}", p50_ratio(numbers, ours), 1.0, True),
        Goal("1 MB bodies / direct", against(numbers, ours, "bodies", "direct"), 0.90, False),
        Goal("cancels seen of 50, mid-stream", of(numbers, ours, "cancels_mid"), 50, False, ".0f"),
        Goal(
            "cancels seen of 50, before the first chunk",
            of(numbers, ours, "cancels_before"),
            50,
            False,
            ".0f",
        ),
        Goal("RSS MB at 512 streams", of(numbers, ours, "rss_512"), 100, True, ".0f"),
    ]
    rows = [["goal of the gateway", "wanted", "found", "held"]]
    rows += [_goal_row(goal) for goal in wanted if goal.values]
    return markdown(rows) if len(rows) > 1 else ""


def _goal_row(goal: Goal) -> list[str]:
    found = spread(goal.values)
    assert found is not None
    held = found.median <= goal.wanted if goal.at_most else found.median >= goal.wanted
    sign = "≤" if goal.at_most else "≥"
    return [
        goal.title,
        f"{sign} {goal.wanted:{goal.form}}",
        _span(found, goal.form),
        "yes" if held else "NO",
    ]


def disturbance(shares: Sequence[float], ahead: bool) -> str:
    """How much of the two cores other programs took. `ahead`: they had to wait for ours."""
    found = spread([share * 100 for share in shares])
    if found is None:
        return ""
    text = f"Other programs took {found.median:.0f} % of the two cores (up to {found.high:.0f} %)"
    if ahead:
        return f"{text}, whenever ours let them."
    return f"{text}." if found.high < 5 else f"{text}: rates and latencies are not to be trusted."


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """An aligned Markdown table; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _middle(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}}" if values else ""


def _span(found: Spread | None, form: str = ".2f") -> str:
    if found is None:
        return ""
    return f"{found.median:{form}} ({found.low:{form}} to {found.high:{form}})"
