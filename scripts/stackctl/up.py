"""`up`: checked, started, followed, asked one question; one clear reason when it cannot be."""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any

from stackctl import caller, canary, drain, fit, http, init, lifecycle, mode, rollback, wait
from stackctl import config as settings
from stackctl import status as status_screen
from stackctl.config import Config
from stackctl.console import Console
from stackctl.doctor import examine, facts, report, seen
from stackctl.errors import FAILED, StackError
from stackctl.layout import Layout
from stackctl.lifecycle import Stack

ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Checked:
    """What may be started."""

    config: Config
    chosen: mode.Mode
    question: fit.Question


def up(
    layout: Layout,
    console: Console,
    timeout_s: float | None,
    *,
    debug: bool = False,
    keep_failed: bool = True,
) -> int:
    """The verb. `keep_failed`: of settings that do not come up, beside .env. Returns the exit
    status; raises StackError with the reason."""
    began = time.monotonic()
    if init.is_needed(layout):
        for made in init.make(layout):
            console.line(f"  made {made}")
    layout.models.mkdir(parents=True, exist_ok=True)
    found = checked(layout, replace(settings.read(layout), debug=debug), console)
    if found is None:
        return FAILED
    found.question.ask(console)
    config, chosen = found.config, found.chosen
    lifecycle.leave_other_mode(layout, config, chosen, console)
    with _back_on_failure(layout, found, console, keep_failed=keep_failed):
        status, asked = _served(layout, found, console, timeout_s or lifecycle.READY_S[chosen])
    found.question.remember()
    if not debug:
        rollback.remember(layout)
    _final_screen(console, config, chosen, status, asked)
    console.line(f"ready after {time.monotonic() - began:.0f} s. Next: make chat")
    return 0


def checked(layout: Layout, config: Config, console: Console) -> Checked | None:
    """Host and settings, judged as `up` does; None where they forbid a start. Changes nothing."""
    host = facts.read_host()
    chosen = mode.decide(config.get("STACK_MODE"), host.engine, host.gpus)
    console.line(f"mode: {chosen}{_because(config, chosen)}")
    if config.debug:
        console.line(f"DEBUG: {status_screen.DEBUG}")
    found = examine.examine(layout, config, host, chosen, seen.gather(layout, chosen))
    if not report.preflight(console, found):
        return None
    return Checked(config, chosen, fit.Question(layout, config, chosen, host))


def _served(
    layout: Layout, found: Checked, console: Console, timeout_s: float
) -> tuple[Mapping[str, Any], str]:
    """The ready /status, and what the canary was asked and answered. Raises StackError."""
    config, chosen = found.config, found.chosen
    init.keep_compose_file(layout, config, chosen)
    mode.record(layout.mode_file, chosen, ready=False)
    stack = lifecycle.stack_of(layout, config, chosen)
    status = _bring_up(stack, config.url, console, timeout_s)
    mode.record(layout.mode_file, chosen, ready=True)
    return status, _canary(layout, config, status, console)


@contextmanager
def _back_on_failure(
    layout: Layout, found: Checked, console: Console, *, keep_failed: bool
) -> Iterator[None]:
    """An engine that was replaced and whose settings do not come up gives way to what served last.
    What is refused before that leaves .env and the engine alone."""
    stack = lifecycle.stack_of(layout, found.config, found.chosen)
    began = stack.started_at("vllm") if stack.is_running() else None
    try:
        yield
    except StackError as error:
        text = rollback.previous(layout)
        if began is not None and text is not None and stack.started_at("vllm") != began:
            console.line(f"  failed: {error}")
            rollback.restore(layout, text, keep_failed=keep_failed)
            _go_back(layout, found, console)
            if keep_failed:
                console.line(f"  the settings that failed are in {layout.failed_env.name}")
        raise


def _go_back(layout: Layout, failed: Checked, console: Console) -> None:
    """Start what served last; where that fails, too, say so, but leave the first reason to end
    with."""
    config = settings.read(layout)
    console.line(f"  going back to {config.get('MODEL', 'auto')}")
    before = replace(failed, config=config)
    try:
        _served(layout, before, console, lifecycle.READY_S[failed.chosen])
    except (StackError, OSError, HTTPException) as error:
        console.line(f"  that failed, too: {error}; fix: make up")
    else:
        console.line(f"  back: {config.get('MODEL', 'auto')} serves again")


def _because(config: Config, chosen: mode.Mode) -> str:
    if config.get("STACK_MODE", "auto") != "auto":
        return " (STACK_MODE)"
    why = {
        "gpu": "a GPU and a Docker engine",
        "cpu": "a Docker engine and no GPU",
        "local": "no Docker engine and no GPU: real vLLM on this CPU, as plain processes",
    }
    return f" ({why[chosen]})"


def _bring_up(stack: Stack, url: str, console: Console, timeout_s: float) -> Mapping[str, Any]:
    """The ready /status of the stack with the settings in force."""
    was_running = stack.is_running()
    stack.prepare(console)
    with _undone_on_failure(stack, was_running):
        stack.start(console)
        _admit(stack, url)
        began = stack.started_at("vllm")
        return wait.until_ready(url, console, stack.watch(), not_before=began, timeout_s=timeout_s)


def _admit(stack: Stack, url: str) -> None:
    """An engine that somebody drained by name takes requests again. One that starts just now would
    die of the signal: the status has to be its own, and not that of the engine before it."""
    engines = http.get(url, "/status").body.get("engines") or []
    for name, engine in zip(stack.engines(), engines, strict=False):
        own = float(engine.get("started") or 0) >= stack.started_at(name) - 1
        if own and engine.get("admitting") is False:
            stack.signal(name, drain.SIGNALS[True])


@contextmanager
def _undone_on_failure(stack: Stack, was_running: bool) -> Iterator[None]:
    """A first start that fails leaves nothing behind. A stack that was there before keeps its
    front, which tells clients the phase, and loses only an engine that did not come up."""
    began = time.time()
    try:
        yield
    except BaseException:
        # Whatever fails here, too, must not hide the first reason.
        with _undisturbed(), suppress(StackError, OSError, HTTPException, KeyboardInterrupt):
            if not was_running:
                stack.stop()
            elif stack.started_at("vllm") >= began - 1:
                stack.stop_engine()
        raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A session that is closed sends more than one signal, and the next must not end the undoing
    half-way. Ctrl-C still does."""
    before = {number: signal.signal(number, _nothing) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nothing(*_: object) -> None:
    """Not SIG_IGN: programs that are started meanwhile would inherit that."""


def _canary(layout: Layout, config: Config, status: Mapping[str, Any], console: Console) -> str:
    """What was asked and answered, as a line of the last screen. Raises StackError."""
    served = [str(name) for name in status.get("served_model_names") or []]
    asker = caller.usable(layout, served)
    if asker is None:
        return "left out: no key for this model is stored in full"
    before = http.get(config.url, "/status").body
    reply = canary.ask(config.url, asker.key, asker.model)
    if isinstance(reply, str):
        return reply
    warning = canary.judge(reply, str(status.get("model") or ""))
    counted = canary.counted(config.url, before, reply)
    if warning:
        console.line(f"  warning: {warning}")
    speed = f"{reply.tokens} tokens, {counted}, {reply.tokens_per_second:.0f} tok/s"
    return f"{reply.asked}  ->  {reply.text[:120]}  ({speed})"


def _final_screen(
    console: Console,
    config: Config,
    chosen: mode.Mode,
    status: Mapping[str, Any],
    asked: str,
) -> None:
    console.line(f"asked:  {asked}")
    console.line(f"url:    {config.url}/v1   key: scripts/stack key show default")
    console.line(
        f"model:  {status.get('model')}  as {', '.join(status.get('served_model_names') or [])}"
    )
    console.line(f"graphs: {status_screen.graphs(status)}")
    tokens, began = status_screen.kv_tokens(status), status_screen.start(status)
    if tokens or began:
        parts = (tokens and f"KV cache of {tokens}", began and f"start in {began}")
        console.line(f"engine: {'; '.join(filter(None, parts))}")
    if status.get("debug"):
        console.line(f"DEBUG:  {status_screen.DEBUG}")
    if config.bind in {"127.0.0.1", "::1"}:
        console.line("open:   this host only; NGINX_BIND=0.0.0.0 in .env opens it to the network")
    elif chosen != "local":
        console.line(f"open:   {config.bind}; a published port passes ufw by: use a cloud firewall")
