"""What only two cases together show. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpu.judge import Row


@dataclass(frozen=True)
class Finding:
    """`value`: a ratio; `wanted`: in words."""

    what: str
    value: float
    wanted: str
    held: bool


LARGEST_WARM_SHARE = 0.40


def findings(rows: list[Row]) -> list[Finding]:
    """Of the cases that are there."""
    by_name = {row["case"]: row for row in rows}
    pairs = (_warm(by_name), _servers(by_name))
    return [found for found in pairs if found]


def _warm(rows: dict[str, Row]) -> Finding | None:
    """Nothing to compare where the first start found caches, or nothing is compiled (a CPU)."""
    cold, warm = ((rows.get(name) or {}).get("start") or {} for name in ("in-force", "warm"))
    if cold.get("compile_cache") != "cold" or not cold.get("seconds") or not warm.get("seconds"):
        return None
    share = round(warm["seconds"] / cold["seconds"], 3)
    return Finding(
        "warm start / cold start", share, f"≤ {LARGEST_WARM_SHARE}", share <= LARGEST_WARM_SHARE
    )


def _servers(rows: dict[str, Row]) -> Finding | None:
    """A host with few cores has one in either case, and then there is nothing to compare."""
    one, auto = (rows.get(name) or {} for name in ("warm", "api-servers-by-cores"))
    speeds = _best(one), _best(auto)
    if None in speeds or one.get("api_servers") == auto.get("api_servers"):
        return None
    ratio = round((speeds[1] or 0.0) / (speeds[0] or 1.0), 3)
    return Finding(
        f"{auto['api_servers']} API servers / one, 256 streams", ratio, "≥ 1", ratio >= 1
    )


def _best(row: Row) -> float | None:
    """Tokens a second, of its loads of 256 streams."""
    speeds = [one["tokens"] / one["seconds"] for one in row.get("load") or []
              if one["streams"] == 256 and one["seconds"]]  # fmt: skip
    return max(speeds, default=None)
