"""The engine from its start to its end: what happens to it, and what is done about it."""

import contextlib
import queue
import signal
import threading
from dataclasses import dataclass, field

from launcher import drain
from launcher.console import say
from launcher.options.settings import Settings
from launcher.status import metrics, reasons
from launcher.status.state import State
from launcher.supervise import Engine

# Beyond the drain: vLLM's own teardown took 4 s on two cores, more with many ranks.
TEARDOWN_S = 30.0
# An engine that serves nobody yet has nothing to finish, and while it waits for its workers vLLM
# 0.32 does not react to SIGTERM (seen: 15 s and more).
EARLY_STOP_S = 5.0
LOOK_UP_S = 0.5
# Of `docker compose kill -s`, so that an engine is drained by its name without any port for it.
ADMISSION = {signal.SIGUSR1: False, signal.SIGUSR2: True}


@dataclass(frozen=True)
class Signalled:
    """A signal came: to stop, or (ADMISSION) to take no more requests, or to take them again."""

    number: int


@dataclass(frozen=True)
class Quiet:
    """What vLLM ran has ended, or its time is over: now it may be told to stop."""

    number: int


@dataclass(frozen=True)
class Ended:
    """vLLM's first process ended (negative: by that signal)."""

    status: int


@dataclass(frozen=True)
class Refused:
    """The engine came up without what it must have; the state says what."""


@dataclass(frozen=True)
class Overdue:
    """The time to stop in is over."""


Event = Signalled | Quiet | Ended | Refused | Overdue
Events = queue.SimpleQueue[Event]


def follow(settings: Settings, state: State, events: Events, engine: Engine) -> int:
    """Handle events until vLLM has ended and nothing of it is left; the exit code."""
    life = _Life(settings, state, events, engine)
    status = life.until_ended()
    return _end(state, engine, status, asked=life.asked)


@dataclass
class _Life:
    settings: Settings
    state: State
    events: Events
    engine: Engine
    asked: bool = False  # to stop, by a signal
    refused: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def until_ended(self) -> int:
        """vLLM's exit status."""
        while True:
            event = self._next()
            if isinstance(event, Ended):
                self.over.set()
                return event.status
            if isinstance(event, Refused):
                self._refuse()
            elif isinstance(event, Quiet):
                self.engine.send(event.number)
            elif isinstance(event, Signalled) and event.number in ADMISSION:
                self.state.admit(ADMISSION[signal.Signals(event.number)])
            elif isinstance(event, Overdue) or self.asked or self.refused:
                self._kill()
            else:
                self._stop(event.number)

    def _next(self) -> Event:
        """The next event. The kernel may give a signal to another thread, which wakes nobody here,
        and Python runs handlers in the main thread alone: so that looks up now and then."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self.events.get(timeout=LOOK_UP_S)

    def _kill(self) -> None:
        say("engine: killing what is left")
        self.engine.sweep()

    def _refuse(self) -> None:
        if not self.asked:
            self.refused = True
            self._send(signal.SIGTERM, EARLY_STOP_S)

    def _stop(self, number: int) -> None:
        self.asked = True
        drain_s = self.settings.drain_s
        was_ready = self.state.snapshot.progress.phase == "ready"
        what = f"letting requests finish (up to {drain_s} s)" if was_ready else "stopping"
        self.state.enter("draining", what)
        if was_ready:
            threading.Thread(target=self._when_quiet, args=(number,), daemon=True).start()
            self._overdue_after(drain_s + TEARDOWN_S)
        else:
            self._send(number, EARLY_STOP_S)

    def _when_quiet(self, number: int) -> None:
        host, port = metrics.reachable(self.settings.host), self.settings.port
        drain.quiet(lambda: metrics.now(host, port), self.settings.drain_s, self.over)
        self.events.put(Quiet(number))

    def _send(self, number: int, patience_s: float) -> None:
        self.engine.send(number)
        self._overdue_after(patience_s)

    def _overdue_after(self, patience_s: float) -> None:
        timer = threading.Timer(patience_s, self.events.put, args=(Overdue(),))
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
        state.enter("failed", reasons.explained(reason, state.snapshot.progress.downgrades))
    return exit_code(status, asked=asked)


def _how(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"


def exit_code(status: int, *, asked: bool) -> int:
    """vLLM's exit status as ours: signal n is 128+n, and an engine that went by itself never
    counts as a success, whatever it returned."""
    if status < 0:
        return 128 - status
    return status if status or asked else 1
