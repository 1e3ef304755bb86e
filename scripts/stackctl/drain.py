"""`drain` and `resume`: one engine takes no more requests, and takes them again.

The launcher does it on SIGUSR1 and SIGUSR2. Nothing else of the stack has to know: a gateway uses
no engine that says it is not ready.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from stackctl import http, lifecycle, programs
from stackctl.config import Config
from stackctl.console import Console
from stackctl.errors import FAILED, USAGE, problem
from stackctl.layout import Layout

SIGNALS = {True: "USR2", False: "USR1"}
HEARD_S = 15.0  # the gateway looks once a second
EVERY_S = 0.25

Engine = Mapping[str, Any]


def drain(layout: Layout, config: Config, console: Console, name: str) -> int:
    """Returns once the engine runs nothing: 0; 1 when some requests took longer than the drain."""
    look, alone = _told(layout, config, name, admitting=False)
    if alone:
        console.line(f"  {name} is the only engine: requests wait now, then they get 503")
    running = _until_idle(look, console, name, programs.drain_s(config))
    if running:
        console.line(f"{name} takes no more requests; {running} still run after the drain time")
        return FAILED
    console.line(f"{name} takes no more requests and runs none. Next: scripts/stack resume {name}")
    return 0


def resume(layout: Layout, config: Config, console: Console, name: str) -> int:
    _told(layout, config, name, admitting=True)
    console.line(f"{name} takes requests")
    return 0


def _told(
    layout: Layout, config: Config, name: str, *, admitting: bool
) -> tuple[Callable[[], Engine], bool]:
    """Signal it and wait until the gateway knows: how to look at it, and whether it is alone.
    Raises StackError."""
    chosen = lifecycle.mode_in_force(layout, config)
    stack = lifecycle.stack_of(layout, config, chosen)
    names = stack.engines()
    if name not in names:
        raise problem(f"engine {name!r}", f"one of {', '.join(names)}", "name one", USAGE)
    if not stack.services().get(name, "").startswith("running"):
        raise problem(f"{name} not running", "a running engine", "make up")
    url = lifecycle.address(layout, config, chosen)
    look = _looking(url, names.index(name))
    _check_can_be_told(look(), name)
    stack.signal(name, SIGNALS[admitting])
    deadline = time.monotonic() + HEARD_S
    while look().get("admitting") is not admitting:
        if time.monotonic() > deadline:
            raise problem(f"no word of it from {name}", "one", f"scripts/stack logs {name}")
        time.sleep(EVERY_S)
    return look, len(names) == 1


def _check_can_be_told(engine: Engine, name: str) -> None:
    """A launcher that does not answer yet would die of the signal."""
    if "admitting" not in engine:
        raise problem(f"no status of {name}", "an engine that answers", "make status")


def _looking(url: str, index: int) -> Callable[[], Engine]:
    def look() -> Engine:
        engines = http.get(url, "/status").body.get("engines") or []
        return engines[index] if index < len(engines) else {}

    return look


def _until_idle(look: Callable[[], Engine], console: Console, name: str, wait_s: float) -> int:
    """How many requests still run at the end."""
    deadline = time.monotonic() + wait_s
    while running := _running(look()):
        if time.monotonic() > deadline:
            return running
        console.progress(f"{name}: draining", f"{running} requests run")
        time.sleep(EVERY_S)
    return 0


def _running(engine: Engine) -> int:
    """Requests in the engine; 1 when it does not say."""
    running, waiting = engine.get("running"), engine.get("waiting")
    return int(running) + int(waiting) if running is not None and waiting is not None else 1
