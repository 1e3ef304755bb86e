"""One life of the engine: check, start, follow, stop, and its exit code."""

import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher import argv, graphs, metrics, phases, preflight, reasons, required, server
from launcher.manifest import Manifest
from launcher.phases import Progress
from launcher.settings import Settings
from launcher.state import Snapshot, State
from launcher.supervise import Engine

NOT_FIT = 3  # exit code: the machine check failed
HEALTH_EVERY_S = 0.5
# Beyond the drain: vLLM's own teardown took 4 s on two cores, more with many ranks.
TEARDOWN_S = 30.0
# An engine that serves nobody yet has nothing to finish, and while it waits for its workers vLLM
# 0.32 does not react to SIGTERM (seen: 15 s and more).
EARLY_STOP_S = 5.0


@dataclass(frozen=True)
class Signalled:
    """We were told to stop."""

    number: int


@dataclass(frozen=True)
class Ended:
    """vLLM's first process ended (negative: by that signal)."""

    status: int


@dataclass(frozen=True)
class Overdue:
    """The time to stop in is over."""


Events = queue.SimpleQueue[Signalled | Ended | Overdue]


def run(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run vLLM until it ends; the process' exit code. Main thread only (signals)."""
    # A handler may only put into the queue: it can interrupt anything, a held lock included.
    events: Events = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: events.put(Signalled(got)))
    try:
        fetched = preflight.fetched_model(settings)
        state = _state(settings, environ, fetched)
        scraper = metrics.Scraper(metrics.reachable(settings.host), settings.port, time.monotonic)
        served = _serve(settings, state, scraper)
        for note in (
            *graphs.notes(environ),
            *preflight.check(settings, environ, Path(fetched.path)),
        ):
            say(f"note: {note}")
    except preflight.NotFitError as error:
        for line in error.lines:
            say(line)
        return NOT_FIT
    try:
        return _supervise(settings, environ, fetched, state, events)
    finally:
        served.shutdown()
        served.server_close()


def say(line: str) -> None:
    """One line for the operator, on stderr (vLLM's own output goes to stdout)."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _state(settings: Settings, environ: Mapping[str, str], fetched: Manifest) -> State:
    ruled_out = required.ruled_out(settings, environ)
    now = time.time()
    snapshot = Snapshot(
        progress=Progress(phase="checking", message="checking the machine"),
        since=now,
        started=now,
        model=fetched.model,
        served_model_names=argv.served_names(settings, fetched.model),
        device=settings.device,
        eager_by=ruled_out[0] if ruled_out else None,
        max_num_seqs=settings.max_num_seqs,
    )
    return State(snapshot, time.time, _announce)


def _announce(progress: Progress) -> None:
    say(f"engine: {progress.phase}: {progress.message}")


def _serve(settings: Settings, state: State, scraper: metrics.Scraper) -> server.StatusServer:
    def status() -> dict[str, object]:
        # Before it is ready nothing listens, and asking would only cost time.
        up = state.snapshot.progress.phase in ("ready", "draining")
        return state.snapshot.as_json(scraper.numbers() if up else metrics.Numbers())

    try:
        return server.serve(settings.host, settings.status_port, status)
    except OSError as error:
        raise preflight.NotFitError(
            (preflight.port_line("ENGINE_STATUS_PORT", settings.status_port, error),)
        ) from error


def _supervise(
    settings: Settings,
    environ: Mapping[str, str],
    fetched: Manifest,
    state: State,
    events: Events,
) -> int:
    if not events.empty():
        return 0  # told to stop before there was anything to stop
    arguments = argv.arguments(settings, fetched.path, fetched.model)
    command = argv.command(
        sys.executable, has_vllm_command=preflight.has_vllm_command(), vllm_arguments=arguments
    )
    state.enter("starting", "starting vLLM")
    try:
        engine = Engine(
            command,
            argv.environment(settings, environ),
            lambda line: state.update(lambda progress: phases.follow(progress, line)),
            sys.stdout.fileno(),
        )
    except OSError as error:
        state.enter("failed", f"found {error.filename} not startable ({error.strerror})")
        return NOT_FIT
    ended = threading.Event()
    threading.Thread(target=lambda: events.put(Ended(engine.wait())), daemon=True).start()
    threading.Thread(target=_watch_health, args=(settings, state, ended), daemon=True).start()
    status, asked = _until_ended(settings, state, events, engine)
    ended.set()
    return _end(state, engine, status, asked=asked)


def _watch_health(settings: Settings, state: State, ended: threading.Event) -> None:
    """vLLM listens only once graphs are captured, so the first 200 means ready."""
    host = metrics.reachable(settings.host)
    while not ended.wait(HEALTH_EVERY_S):
        answer = metrics.get(host, settings.port, "/health", timeout_s=5.0)
        if answer and answer[0] == 200:
            names = ", ".join(state.snapshot.served_model_names)
            state.enter("ready", f"serving {names}")
            return


def _until_ended(
    settings: Settings, state: State, events: Events, engine: Engine
) -> tuple[int, bool]:
    """Handle events until vLLM ended; its status and whether it was told to."""
    asked = False
    while True:
        event = events.get()
        if isinstance(event, Ended):
            return event.status, asked
        if isinstance(event, Overdue) or asked:
            say("engine: killing what is left" if asked else "engine: killing vLLM")
            engine.sweep()
        elif isinstance(event, Signalled):
            asked = True
            _stop(settings, state, events, engine, event.number)


def _stop(settings: Settings, state: State, events: Events, engine: Engine, number: int) -> None:
    was_ready = state.snapshot.progress.phase == "ready"
    patience = settings.drain_s + TEARDOWN_S if was_ready else EARLY_STOP_S
    what = f"letting requests finish (up to {settings.drain_s} s)" if was_ready else "stopping"
    state.enter("draining", what)
    engine.send(number)
    timer = threading.Timer(patience, events.put, args=(Overdue(),))
    timer.daemon = True
    timer.start()


def _end(state: State, engine: Engine, status: int, *, asked: bool) -> int:
    engine.sweep()
    engine.wait_all(timeout_s=5.0)
    lines = engine.output.finish(timeout_s=5.0)
    if asked:
        state.enter("stopped", f"stopped, {_how(status)}")
    else:
        reason = reasons.of_output(lines) or reasons.of_exit(status)
        state.enter("failed", reason)
    return exit_code(status, asked=asked)


def _how(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"


def exit_code(status: int, *, asked: bool) -> int:
    """vLLM's exit status as ours: signal n is 128+n, and an engine that went by itself never
    counts as a success, whatever it returned."""
    if status < 0:
        return 128 - status
    return status if status or asked else 1
