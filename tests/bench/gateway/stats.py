"""Medians and ratios. Pure: from the numbers of each repeat to what a table shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# contender -> metric -> one number a repeat, in the order of the repeats
Numbers = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Spread:
    """The middle one of some numbers, and the outermost."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    """None for no numbers."""
    if not values:
        return None
    return Spread(median(values), min(values), max(values))


def ratios(values: Sequence[float], base: Sequence[float]) -> list[float]:
    """Value by base of the same repeat: a machine drifts less within a repeat than between them."""
    return [a / b for a, b in zip(values, base, strict=True) if b > 0]


def differences(values: Sequence[float], base: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(values, base, strict=True)]


def put(numbers: Numbers, contender: str, metric: str, value: float) -> None:
    numbers.setdefault(contender, {}).setdefault(metric, []).append(value)


def of(numbers: Numbers, contender: str, metric: str) -> list[float]:
    """The numbers of one metric, none when it was not measured."""
    return numbers.get(contender, {}).get(metric, [])


def against(numbers: Numbers, contender: str, metric: str, base: str) -> list[float]:
    """Ratios to another contender, none when either was not measured."""
    own, other = of(numbers, contender, metric), of(numbers, base, metric)
    return ratios(own, other) if own and len(own) == len(other) else []
