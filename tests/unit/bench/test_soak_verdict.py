"""What the soak calls flat."""

from __future__ import annotations

from dataclasses import replace

from bench.gateway.soak import MAY_GROW_MB, Look, growth_mb, verdict

BEFORE = Look(0, 80, 14, 0, 0)


def hour(per_minute_mb: float, peak_mb: float = 0.0) -> list[Look]:
    """Sixty looks: a warm-up of ten minutes to 90 MB, then a slope, and one peak in it."""
    looks = [Look(60.0 * n, 80 + min(n, 10) + per_minute_mb * n, 120, 50, 0) for n in range(1, 61)]
    looks[40] = replace(looks[40], rss_mb=looks[40].rss_mb + peak_mb)
    return looks


def test_a_warm_up_and_a_peak_are_no_growth() -> None:
    assert abs(growth_mb(hour(0, peak_mb=50))) < 0.01
    assert verdict(hour(0, peak_mb=50), BEFORE, BEFORE, 0) == []


def test_a_slow_leak_is_growth() -> None:
    grown = growth_mb(hour(0.2))
    assert MAY_GROW_MB < grown < 0.2 * 60
    assert "memory" in verdict(hour(0.2), BEFORE, BEFORE, 0)[0]


def test_files_slots_and_wrong_answers_count() -> None:
    left = replace(BEFORE, files=17, in_flight=1)
    findings = verdict(hour(0), BEFORE, left, wrong=1)
    assert [line.split(":")[0] for line in findings] == ["open files", "slots", "answers"]
