"""The other verbs over a stack that may run: down, status, logs, restart."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stackctl import http, mode, ports, programs, status, wait
from stackctl.compose import ComposeStack
from stackctl.config import Config
from stackctl.console import Console
from stackctl.containers import SERVICES
from stackctl.doctor import facts
from stackctl.errors import USAGE, problem
from stackctl.layout import Layout
from stackctl.local import LocalStack, tail
from stackctl.mode import Mode
from stackctl.supervisor import leftovers

Stack = LocalStack | ComposeStack
QUIET_S = 1.0  # what takes longer is explained
ALIVE_S = 30.0  # a gateway starts in one second, nginx finds it again within four
READY_S = {"gpu": 7200.0, "cpu": 1800.0, "local": 900.0}


def mode_in_force(layout: Layout, config: Config) -> Mode:
    """The mode of the last `up`, else the one that `up` would take."""
    recorded = mode.recorded(layout.mode_file)
    if recorded:
        return recorded
    return mode.decide(config.get("STACK_MODE"), facts.read_engine(), facts.read_gpus())


def stack_of(layout: Layout, config: Config, chosen: Mode) -> Stack:
    return (
        LocalStack(layout, config)
        if chosen == "local"
        else ComposeStack(layout, debug=config.debug)
    )


def leave_other_mode(layout: Layout, config: Config, chosen: Mode, console: Console) -> None:
    """Processes and containers cannot share the port: what an `up` in the other kind of mode
    started is stopped first."""
    before = mode.recorded(layout.mode_file)
    if before and (before == "local") != (chosen == "local"):
        console.line(f"  stopping the stack of mode {before}")
        stack_of(layout, config, before).stop()


def down(layout: Layout, config: Config, console: Console) -> int:
    """Stop everything of this checkout; local processes also when the last `up` was Docker's."""
    chosen = mode_in_force(layout, config)
    with _explained(console, config):
        stack_of(layout, config, chosen).stop()
    if chosen != "local" and leftovers(layout):
        LocalStack(layout, config).stop()
    console.line("stopped; keys, models and caches stay")
    return 0


@contextmanager
def _explained(console: Console, config: Config) -> Iterator[None]:
    """A stop that takes more than a second says why, and for how long at most."""
    seconds = programs.drain_s(config)
    words = f"  draining: answers that run have up to {seconds} s (GATEWAY_DRAIN_S)"
    note = threading.Timer(QUIET_S, console.line, (words,))
    note.daemon = True  # never what keeps an interrupted verb alive
    note.start()
    try:
        yield
    finally:
        note.cancel()


def show_status(layout: Layout, config: Config, console: Console, as_json: bool) -> int:
    chosen = mode_in_force(layout, config)
    services = stack_of(layout, config, chosen).services()
    runs = any(what.startswith("running") for what in services.values())
    url, differs = _address(layout, config, chosen) if runs else (config.url, "")
    report = status.gather(url, chosen, services, differs)
    if report["phase"] == "stopped" and runs:
        report["phase"] = "unknown"
        report["message"] += "; .env may differ from what runs (its port, for one); fix: make up"
    if as_json:
        console.line(json.dumps(report, indent=2))
        return 0
    for line in status.screen(report, status.rate(url, report)):
        console.line(line)
    return 0


def address(layout: Layout, config: Config, chosen: Mode) -> str:
    """The URL of the stack that runs."""
    return _address(layout, config, chosen)[0]


def _address(layout: Layout, config: Config, chosen: Mode) -> tuple[str, str]:
    """Where the stack that runs is reached, and how .env differs from that since it was edited."""
    recorded = ports.read(layout) if chosen == "local" else None
    if recorded is None or recorded.nginx == config.port:
        return config.url, ""
    change = f"NGINX_PORT {recorded.nginx} -> {config.port}"
    return config.url_at(recorded.nginx), f".env differs from what runs ({change}); fix: make up"


def restart(layout: Layout, config: Config, console: Console, service: str | None) -> int:
    chosen = mode_in_force(layout, config)
    _check_service(service, programs.ORDER if chosen == "local" else SERVICES)
    stack = stack_of(layout, config, chosen)
    if not stack.is_running():
        raise problem("no running stack", "one", "make up")
    url, _ = _address(layout, config, chosen)
    console.line(f"  restarting {service or 'all'}")
    began = time.time()
    with _explained(console, config):
        stack.restart(service)
    if service in (None, "vllm"):
        wait.until_ready(url, console, stack.watch(), not_before=began, timeout_s=READY_S[chosen])
    else:
        _until_alive(url)
    console.line(f"restarted {service or 'all'}, with the settings it had; make up applies .env")
    return 0


def _until_alive(url: str) -> None:
    """The gateway answers through nginx again. Raises StackError."""
    deadline = time.monotonic() + ALIVE_S
    while http.get(url, "/livez").status != 200:
        if time.monotonic() > deadline:
            raise problem(f"no answer at {url}/livez", "one", "scripts/stack logs")
        time.sleep(0.1)


def logs(
    layout: Layout, config: Config, console: Console, service: str | None, follow: bool, count: int
) -> int:
    chosen = mode_in_force(layout, config)
    _check_service(service, _local_logs() if chosen == "local" else SERVICES)
    if chosen != "local":
        return ComposeStack(layout).logs(service, follow, count)
    files = {name: layout.logs / f"{name}.log" for name in _local_logs() if service in (None, name)}
    for name, path in files.items():
        for line in tail(path, count):
            console.line(f"{name:<8} | {line}")
    if follow:
        _follow(files, console)
    return 0


def _local_logs() -> tuple[str, ...]:
    return ("model", *programs.ORDER, "supervisord")


def _check_service(service: str | None, known: tuple[str, ...]) -> None:
    if service is not None and service not in known:
        raise problem(f"service {service!r}", f"one of {', '.join(known)}", "name one", USAGE)


def _follow(files: dict[str, Path], console: Console) -> None:
    """Print what is added, until Ctrl-C. A file that was rotated away starts again at 0."""
    places = {name: _size(path) for name, path in files.items()}
    while True:
        for name, path in files.items():
            size = _size(path)
            start = places[name] if size >= places[name] else 0
            if size > start:
                with path.open("rb") as stream:
                    stream.seek(start)
                    added = stream.read(size - start)
                for line in added.decode("utf-8", "replace").splitlines():
                    console.line(f"{name:<8} | {line}")
            places[name] = size
        time.sleep(0.3)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
