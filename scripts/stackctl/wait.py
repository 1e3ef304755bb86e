"""Follow the phases of /status until the stack is ready, it fails, or the time is over."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from stackctl import http
from stackctl.console import Console
from stackctl.errors import StackError

EVERY_S = 0.5
LOOK_S = 2.0  # asking Docker or supervisor costs more than asking /status


def until_ready(
    url: str,
    console: Console,
    trouble: Callable[[], str | None],
    *,
    not_before: float,
    timeout_s: float,
) -> Mapping[str, Any]:
    """The ready /status of an engine that was started at `not_before` (unix seconds) or later, so
    that the last words of the engine before it do not count. Raises StackError."""
    began = time.monotonic()
    looked = 0.0
    status: Mapping[str, Any] = {}
    while time.monotonic() - began < timeout_s:
        if time.monotonic() - looked >= LOOK_S:
            looked = time.monotonic()
            reason = trouble()
            if reason:
                raise StackError(reason)
        answer = http.get(url, "/status")
        status = answer.body if answer.status else {}
        if is_ready(status, not_before):
            return status
        show(console, status, time.monotonic() - began)
        time.sleep(EVERY_S)
    phase = status.get("phase", "no answer")
    raise StackError(
        f"found the stack not ready after {timeout_s:.0f} s (phase: {phase}); wanted ready;"
        " fix: scripts/stack logs vllm, or a longer up --timeout"
    )


def is_ready(status: Mapping[str, Any], not_before: float) -> bool:
    engines = status.get("engines") or []
    # Whole seconds on either side: one second of slack.
    fresh = all(float(e.get("started") or 0) >= not_before - 1 for e in engines)
    return bool(status.get("ready")) and fresh


def show(console: Console, status: Mapping[str, Any], seconds: float) -> None:
    phase = str(status.get("phase", "starting"))
    message = str(status.get("message") or "")
    console.progress(f"engine: {phase}", f"{seconds:.0f} s  {message}".rstrip())
