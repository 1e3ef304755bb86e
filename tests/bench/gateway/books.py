"""Do the books of our gateway say what was sent to it? Findings are lines; none is good."""

from __future__ import annotations

from pathlib import Path

from bench.gateway.contenders import Contender, stop
from bench.gateway.measure import Bench


def judge(bench: Bench, gateway: Contender | None, folder: Path) -> list[str]:
    """Stops the gateway (its last second is then on disk) and compares."""
    findings = [
        f"{name}: {sent.failed} requests or streams did not end well"
        for name, sent in bench.sent.items()
        if sent.failed
    ]
    if gateway is None:
        return findings
    code = stop(gateway.process)
    if code:
        findings.append(f"the gateway ended with exit code {code}")
    return findings
