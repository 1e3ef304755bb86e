"""`up`: checked, started, followed, asked one question; one clear reason when it cannot be."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any

from stackctl import canary, doctor, facts, http, init, keys, lifecycle, mode, wait
from stackctl import config as settings
from stackctl.compose import ComposeStack
from stackctl.config import Config
from stackctl.console import Console
from stackctl.errors import FAILED, StackError
from stackctl.layout import Layout
from stackctl.local import LocalStack


def up(layout: Layout, console: Console, timeout_s: float | None) -> int:
    """The verb. Returns the exit status; raises StackError with the reason."""
    began = time.monotonic()
    if init.is_needed(layout):
        for made in init.make(layout):
            console.line(f"  made {made}")
    layout.models.mkdir(parents=True, exist_ok=True)
    config = settings.read(layout)
    host = facts.read_host()
    chosen = mode.decide(config.get("STACK_MODE"), host.engine, host.gpus)
    console.line(f"mode: {chosen}{_because(config, chosen)}")
    if not doctor.preflight(console, doctor.examine(layout, config, host, chosen)):
        return FAILED
    lifecycle.leave_other_mode(layout, config, chosen, console)
    init.keep_compose_file(layout, config, chosen)
    _remember(layout, chosen)
    limit = timeout_s or lifecycle.READY_S[chosen]
    if chosen == "local":
        status = _up_local(layout, config, console, limit)
    else:
        status = _up_docker(layout, config, console, limit)
    reply, counted = _canary(layout, config, status)
    _final_screen(console, config, chosen, status, reply, counted)
    console.line(f"ready after {time.monotonic() - began:.0f} s. Next: make chat")
    return 0


def _because(config: Config, chosen: mode.Mode) -> str:
    if config.get("STACK_MODE", "auto") != "auto":
        return " (STACK_MODE)"
    why = {
        "gpu": "a GPU and a Docker engine",
        "cpu": "a Docker engine and no GPU",
        "local": "no Docker engine and no GPU: real vLLM on this CPU, as plain processes",
    }
    return f" ({why[chosen]})"


def _remember(layout: Layout, chosen: mode.Mode) -> None:
    layout.mode_file.write_text(f"{chosen}\n", encoding="ascii")


def _up_local(
    layout: Layout, config: Config, console: Console, timeout_s: float
) -> Mapping[str, Any]:
    stack = LocalStack(layout, config)
    was_running = stack.is_running()
    stack.prepare(console)
    now = time.time()
    with _undone_on_failure(stack, was_running):
        changed = stack.start()
        console.line(f"  started: {', '.join(changed)}" if changed else "  nothing changed")
        not_before = now if "vllm" in changed else 0.0
        return wait.until_ready(
            config.url, console, stack.watch(), not_before=not_before, timeout_s=timeout_s
        )


def _up_docker(
    layout: Layout, config: Config, console: Console, timeout_s: float
) -> Mapping[str, Any]:
    stack = ComposeStack(layout)
    was_running = stack.is_running()
    stack.build(console)
    stack.check_gateway()
    with _undone_on_failure(stack, was_running):
        if not was_running:
            stack.front()
        stack.fetch(console)
        stack.up()
        return wait.until_ready(
            config.url,
            console,
            stack.watch(),
            not_before=stack.started_at("vllm"),
            timeout_s=timeout_s,
        )


@contextmanager
def _undone_on_failure(stack: LocalStack | ComposeStack, was_running: bool) -> Iterator[None]:
    """A first start that fails leaves nothing behind. A stack that was there before keeps its
    front, which tells clients the phase, and loses only an engine that did not come up."""
    began = time.time()
    try:
        yield
    except BaseException:
        # Whatever fails here, too, must not hide the first reason.
        with suppress(StackError, OSError, HTTPException):
            if not was_running:
                stack.stop()
            elif stack.started_at("vllm") >= began - 1:
                stack.stop_engine()
        raise


def _canary(
    layout: Layout, config: Config, status: Mapping[str, Any]
) -> tuple[canary.Reply | None, str]:
    key = keys.usable(layout)
    if key is None:
        return None, "no key without limits is stored in full, so the test question was left out"
    before = canary.generated(http.get(config.url, "/status").body)
    reply = canary.ask(config.url, key)
    canary.judge(reply, str(status.get("model") or ""))
    return reply, canary.counted(config.url, before, reply)


def _final_screen(
    console: Console,
    config: Config,
    chosen: mode.Mode,
    status: Mapping[str, Any],
    reply: canary.Reply | None,
    counted: str,
) -> None:
    graphs = status.get("graphs") or {}
    if reply:
        console.line(
            f"asked:  {canary.QUESTION}  ->  {reply.text[:120]}"
            f"  ({reply.completion_tokens} tokens, {counted}, {reply.tokens_per_second:.0f} tok/s)"
        )
    else:
        console.line(f"asked:  {counted}")
    console.line(f"url:    {config.url}/v1   key: scripts/stack key show default")
    console.line(
        f"model:  {status.get('model')}  as {', '.join(status.get('served_model_names') or [])}"
    )
    console.line(f"graphs: {graphs.get('verdict', 'unknown')}  {graphs.get('reason', '')}".rstrip())
    if config.bind in {"127.0.0.1", "::1"}:
        console.line("open:   this host only; NGINX_BIND=0.0.0.0 in .env opens it to the network")
    elif chosen != "local":
        console.line(f"open:   {config.bind}; a published port passes ufw by: use a cloud firewall")
