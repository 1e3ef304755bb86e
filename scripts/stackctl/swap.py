"""`swap`: another model with no failed request; the one before comes back where the new one fails.

.env is written first, so that `make up` finishes or repairs whatever is interrupted: it starts what
.env says, and goes back to what served last (rollback.py) where that does not come up.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stackctl import config as settings
from stackctl import http, lifecycle, mode, programs, rollback, swapplan, up
from stackctl.config import Config
from stackctl.console import Console
from stackctl.errors import FAILED, USAGE, problem
from stackctl.layout import Layout
from stackctl.swapplan import Changes, Wanted


def swap(
    layout: Layout,
    console: Console,
    wanted: Wanted,
    timeout_s: float | None,
    *,
    dry_run: bool = False,
) -> int:
    """The verb. Returns the exit status; raises StackError with the reason."""
    if not layout.env_file.exists():
        raise problem("no .env", "a stack that was set up", "make up", USAGE)
    config = settings.read(layout)
    new = swapplan.changes(wanted, swapplan.preset(layout, wanted.preset))
    _check_shell(config, new)
    before = rollback.text_of(layout)
    text = swapplan.edited(before, new)
    if text == before:
        console.line("  .env says so already")
    for line in _plan(layout, config, new):
        console.line(f"  {line}")
    if dry_run:
        return _rehearse(layout, _with(config, new), console)
    rollback.put(layout, text)
    try:
        code = up.up(layout, console, timeout_s, keep_failed=False)
    except KeyboardInterrupt:
        _undo(layout, before)
        _again(layout, console)
        raise
    except BaseException:
        _undo(layout, before)
        raise
    if code:
        _undo(layout, before)
    return code


def _check_shell(config: Config, new: Changes) -> None:
    for name in new:
        if name in config.environment:
            raise problem(f"{name} set in the environment, which wins over .env", "it unset",
                          f"unset {name}", USAGE)  # fmt: skip


def _with(config: Config, new: Changes) -> Config:
    values = {name: value for name, value in {**config.values, **new}.items() if value}
    return replace(config, values=values)


def _rehearse(layout: Layout, config: Config, console: Console) -> int:
    """All checks of `up`, nothing changed."""
    checked = up.checked(layout, config, console)
    if checked is None:
        return FAILED
    checked.question.ask(console)
    console.line("dry run: nothing was changed")
    return 0


def _undo(layout: Layout, before: str) -> None:
    """Refused or interrupted, and `up` had not gone back by itself."""
    if not rollback.is_served(layout):
        rollback.put(layout, before)


def _again(layout: Layout, console: Console) -> None:
    """The model before, if its engine was stopped for the next one. Who interrupts waits for
    nothing: that it starts is enough. Another interruption leaves it to `make up`."""
    chosen = mode.recorded(layout.mode_file)
    if chosen is None:
        return
    stack = lifecycle.stack_of(layout, settings.read(layout), chosen)
    if not stack.services().get("vllm", "").startswith("running"):
        console.line("  interrupted: the model before starts again (make status)")
        stack.start(console)


def _plan(layout: Layout, config: Config, new: Changes) -> list[str]:
    lines = swapplan.shown(config.values, new)
    if kept := swapplan.kept(config.values, new):
        lines.append(f"kept, and made for the model before: {', '.join(kept)}")
    chosen = mode.recorded(layout.mode_file)
    if chosen is None or not lifecycle.stack_of(layout, config, chosen).is_running():
        return [*lines, "plan: nothing runs, so this is a start"]
    told = http.get(lifecycle.address(layout, config, chosen), "/status").body
    return [*lines, *_in_place(programs.hold_s(config), _last_start(told))]


def _last_start(told: Mapping[str, Any]) -> float | None:
    """Seconds, where the launcher says so."""
    return (told.get("start") or {}).get("seconds")


def _in_place(hold_s: int, start_s: float | None) -> list[str]:
    """How the engine is replaced, for people."""
    took = "" if start_s is None else f"; the last start took {start_s:.0f} s"
    lines = [
        "plan: in place. The model before serves until the next one is on the disk; then it ends"
        f" what it runs, and requests wait up to {hold_s} s (GATEWAY_HOLD_S){took}"
    ]
    if start_s is not None and start_s >= hold_s:
        lines.append("warning: a start takes longer than that; later requests get 503")
    return lines
