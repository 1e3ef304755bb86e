"""What was found, printed: for `doctor` all of it, for `up` what stands in the way."""

import json
from collections.abc import Mapping

from stackctl.console import Console
from stackctl.doctor.checks import Check
from stackctl.errors import FAILED

MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def show(
    console: Console, chosen: str, found: list[Check], facts: Mapping[str, object] | None
) -> int:
    """Print all checks, or as JSON with `facts` where those are given; 1 when one failed."""
    failed = any(check.status == "fail" for check in found)
    if facts is not None:
        rows = [check.as_dict() for check in found]
        whole = {"mode": chosen, "ok": not failed, "checks": rows, "facts": facts}
        console.line(json.dumps(whole, indent=2))
    else:
        console.line(f"mode: {chosen}")
        for check in found:
            console.line(f"{MARKS[check.status]}  {check.name:<9} {check.line}")
    return FAILED if failed else 0


def preflight(console: Console, found: list[Check]) -> bool:
    """For `up`: only what stands in the way, one line each. True when nothing does."""
    for check in found:
        if check.status == "warn":
            console.line(f"  warning: {check.name}: {check.line}")
        elif check.status == "fail":
            console.error(f"{check.name}: {check.line}")
    return not any(check.status == "fail" for check in found)
