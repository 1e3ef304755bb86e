"""Local mode's processes under supervisord (from PyPI): its configuration, its RPC, its remains."""

import configparser
import contextlib
import http.client
import os
import shlex
import signal
import socket
import time
import xmlrpc.client
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackctl import process
from stackctl.doctor import facts
from stackctl.errors import problem
from stackctl.layout import Layout

# In the environment of supervisord and of everything below it, so that `down` finds what a crash
# or a kill -9 left behind without trusting pid files.
MARK = "STACK_RUN_DIR"
START_S = 15.0
STOP_S = 60  # for a daemon whose configuration cannot be read any more
KILL_AFTER_S = 10.0


@dataclass(frozen=True)
class Managed:
    """How supervisor treats one program."""

    name: str
    stop_signal: str
    stop_wait_s: int
    priority: int


@dataclass(frozen=True)
class State:
    """One program as supervisor reports it; `name` RUNNING, STARTING, BACKOFF, EXITED, …"""

    program: str
    name: str
    pid: int
    exit_status: int
    since: int

    @property
    def is_up(self) -> bool:
        return self.name in {"RUNNING", "STARTING"}


def configuration(layout: Layout, programs: Iterable[Managed]) -> str:
    """supervisord.conf. Programs are started by us over RPC, in an order and with a reason."""
    head = f"""\
; Written by scripts/stack; do not edit.
[unix_http_server]
file={_plain(layout.supervisor_socket)}
chmod=0700

[supervisord]
logfile={_plain(layout.logs / "supervisord.log")}
logfile_maxbytes=1MB
logfile_backups=2
pidfile={_plain(layout.supervisor_pid)}
{_user()}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl=unix://{_plain(layout.supervisor_socket)}
"""
    return head + "".join(_section(layout, program) for program in programs)


def _user() -> str:
    """Root says so itself: supervisord calls a silent one critical. Others cannot change theirs."""
    return "user=root\n" if os.geteuid() == 0 else ""


def _section(layout: Layout, program: Managed) -> str:
    spawn = layout.root / "scripts" / "stackctl" / "spawn.py"
    spec = layout.programs / f"{program.name}.json"
    command = " ".join(shlex.quote(str(part)) for part in (layout.venv_python, "-P", spawn, spec))
    # Exit 2 and 3 are refusals (bad settings, wrong machine): starting again changes nothing.
    return f"""
[program:{program.name}]
command={_plain(command)}
autostart=false
autorestart=unexpected
exitcodes=0,2,3
startsecs=1
startretries=3
priority={program.priority}
stopsignal={program.stop_signal}
stopwaitsecs={program.stop_wait_s}
killasgroup=true
redirect_stderr=true
stdout_logfile={_plain(layout.logs / f"{program.name}.log")}
stdout_logfile_maxbytes=20MB
stdout_logfile_backups=2
"""


def _plain(text: str | Path) -> str:
    return str(text).replace("%", "%%")


def stop_waits(layout: Layout) -> dict[str, int]:
    """Seconds each program has to stop, as the daemon that runs has read them; .env may have been
    edited since. Empty when its configuration is gone or broken."""
    parser = configparser.RawConfigParser()
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        parser.read(layout.supervisor_conf, encoding="utf-8")
    return {
        name.removeprefix("program:"): parser.getint(name, "stopwaitsecs", fallback=STOP_S)
        for name in parser.sections()
        if name.startswith("program:")
    }


class _Transport(xmlrpc.client.Transport):
    """XML-RPC over the Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__()
        self._path = path
        self._timeout = timeout

    def make_connection(self, host: object) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost", timeout=self._timeout)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(self._timeout)
        try:
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            raise
        connection.sock = sock
        self._connection = ("localhost", connection)  # what close() closes
        return connection


class Supervisor:
    """The supervisord of one checkout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def _call(self, method: str, *args: object, timeout: float = 10.0) -> object:
        transport = _Transport(self._layout.supervisor_socket, timeout)
        proxy = xmlrpc.client.ServerProxy("http://localhost", transport=transport)
        try:
            return getattr(proxy, f"supervisor.{method}")(*args)
        finally:
            transport.close()

    def is_alive(self) -> bool:
        try:
            state = self._call("getState", timeout=5)
            return isinstance(state, dict) and state.get("statename") == "RUNNING"
        except (OSError, xmlrpc.client.Error, http.client.HTTPException):
            return False

    def states(self) -> dict[str, State]:
        """All programs; empty when no supervisord answers."""
        try:
            answer = self._call("getAllProcessInfo")
            infos = answer if isinstance(answer, list) else []
        except (OSError, xmlrpc.client.Error, http.client.HTTPException):
            return {}
        return {info["name"]: _state(info) for info in infos if isinstance(info, dict)}

    def start(self, program: str) -> None:
        """Returns at once; the state tells how it goes."""
        with contextlib.suppress(xmlrpc.client.Fault):  # already started
            self._call("startProcess", program, False)

    def stop(self, program: str) -> None:
        """Returns when it has ended, by itself or after its time to drain."""
        wait_s = stop_waits(self._layout).get(program, STOP_S)
        with contextlib.suppress(xmlrpc.client.Fault):  # not running
            self._call("stopProcess", program, True, timeout=wait_s + 15)

    def signal(self, program: str, name: str) -> None:
        with contextlib.suppress(xmlrpc.client.Fault):
            self._call("signalProcess", program, name)

    def launch(self) -> None:
        """Start the daemon on a clean ground. Raises StackError."""
        layout = self._layout
        for stale in (layout.supervisor_socket, layout.supervisor_pid):
            stale.unlink(missing_ok=True)
        env = {MARK: str(layout.run), "PATH": os.environ.get("PATH", os.defpath)}
        done = process.run(
            [layout.venv_python, "-m", "supervisor.supervisord", "-c", layout.supervisor_conf],
            env={**env, "HOME": os.environ.get("HOME", "/")},
            cwd=layout.run,
        )
        deadline = time.monotonic() + START_S
        while done.rc == 0 and time.monotonic() < deadline:
            if self.is_alive():
                return
            time.sleep(0.1)
        log = layout.logs / "supervisord.log"
        raise problem(f"supervisord did not start: {done.last_line}", "it", f"see {log}")

    def _is_there(self) -> bool:
        """Whether a daemon holds the socket at all. One that shuts down answers with a fault, and
        a busy one late: only a socket that is absent or refuses means that it is gone."""
        try:
            self._call("getState", timeout=5)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except (OSError, xmlrpc.client.Error, http.client.HTTPException):
            return True
        return True

    def shut_down(self, margin_s: float) -> None:
        """The daemon stops its programs one after the other, the highest priority first and each
        with its own time to drain, and ends; then whatever still carries our mark is ended. One
        that was asked before, and stops already, is waited for just the same."""
        waits = stop_waits(self._layout).values()
        with contextlib.suppress(OSError, xmlrpc.client.Error, http.client.HTTPException):
            self._call("shutdown")
        deadline = time.monotonic() + (sum(waits) or STOP_S) + margin_s
        while self._is_there() and time.monotonic() < deadline:
            time.sleep(0.1)
        end_leftovers(self._layout)
        for stale in (self._layout.supervisor_socket, self._layout.supervisor_pid):
            stale.unlink(missing_ok=True)


def _state(info: dict[str, Any]) -> State:
    return State(info["name"], info["statename"], info["pid"], info["exitstatus"], info["start"])


def leftovers(layout: Layout) -> list[int]:
    """Pids of this checkout's stack, found by what they carry and not by a pid file."""
    mark = f"{MARK}={layout.run}".encode()
    return [pid for pid in facts.pids() if pid != os.getpid() and _is_ours(pid, mark, layout)]


def _is_ours(pid: int, mark: bytes, layout: Layout) -> bool:
    home = Path(f"/proc/{pid}")
    try:
        if (home / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
            return False
        if mark in (home / "environ").read_bytes().split(b"\0"):
            return True
        # These write a title over their environment; the folder they are in still tells.
        name = (home / "comm").read_text(encoding="utf-8")
        titled = {"nginx": layout.nginx_out, "VLLM": layout.root}
        folder = next((place for start, place in titled.items() if name.startswith(start)), None)
        return folder is not None and (home / "cwd").readlink() == folder
    except OSError:
        return False


def end_leftovers(layout: Layout) -> None:
    """SIGTERM, then SIGKILL for what is left of our own processes."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid in leftovers(layout):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        deadline = time.monotonic() + KILL_AFTER_S
        while leftovers(layout) and time.monotonic() < deadline:
            time.sleep(0.1)
