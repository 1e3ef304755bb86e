"""The pure parts of the benchmark: what becomes of numbers, and what counts as an event."""

from __future__ import annotations

import pytest
from bench.gateway import report
from bench.gateway.load import Events
from bench.gateway.stats import Numbers, Spread, against, put, ratios, spread


def test_spread_is_the_middle_and_both_ends() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread([]) is None


def test_ratios_stay_within_their_repeat() -> None:
    """A machine twice as slow in one repeat changes no ratio."""
    assert ratios([2.0, 4.0], [4.0, 8.0]) == [0.5, 0.5]
    assert ratios([1.0], [0.0]) == []


def numbers() -> Numbers:
    found: Numbers = {}
    for cpu in (4.0, 8.0, 5.0):
        put(found, "byte copy", "cpu_512", cpu)
        put(found, "gateway", "cpu_512", cpu * 0.6)
    for p50 in (0.1, 0.2, 0.1):
        put(found, "direct", "p50_ms", p50)
        put(found, "byte copy", "p50_ms", p50 + 0.4)
        put(found, "gateway", "p50_ms", p50 + 0.5)
    return found


def test_a_metric_that_was_not_measured_has_no_ratio() -> None:
    assert against(numbers(), "gateway", "unary", "byte copy") == []
    assert against(numbers(), "nginx", "cpu_512", "byte copy") == []


def test_added_time_is_compared_without_the_direct_part() -> None:
    assert report.added_p50(numbers(), "gateway") == pytest.approx([0.5, 0.5, 0.5])
    assert report.p50_ratio(numbers(), "gateway") == pytest.approx([1.25, 1.25, 1.25])


def test_goals_say_what_holds() -> None:
    rows = [
        [cell.strip() for cell in row.split("|")] for row in report.goals(numbers()).split("\n")
    ]
    held = {row[1]: row[4] for row in rows[2:]}
    assert held == {"CPU at 512 streams / byte copy": "yes", "added p50 / byte copy": "NO"}


def test_tables_show_only_what_was_measured() -> None:
    table = report.medians(numbers(), (64, 512))
    assert "512 streams" in table
    assert "64 streams" not in table
    assert "unary" not in report.relative(numbers(), (64, 512))


def test_markdown_is_aligned() -> None:
    lines = report.markdown([["a", "bb"], ["ccc", "d"]]).split("\n")
    assert lines == ["| a   | bb |", "|-----|----|", "| ccc | d  |"]


def test_a_busy_machine_is_named() -> None:
    assert "not to be trusted" in report.disturbance([0.0, 0.2], ahead=False)
    assert "not to be trusted" not in report.disturbance([0.0, 0.01], ahead=False)
    assert "not to be trusted" not in report.disturbance([0.0, 0.2], ahead=True)


@pytest.mark.parametrize("cut", range(1, 30))
def test_events_are_counted_wherever_a_piece_ends(cut: int) -> None:
    data = b"data: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"
    events = Events()
    events.add(data[:cut], b"")
    events.add(data[cut:], data[cut - 1 : cut])
    assert events.total == 2
