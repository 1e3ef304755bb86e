"""vLLM as a child: its processes in one group, its output relayed and read, nothing left behind."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from launcher import guard

LONGEST_LINE = 64 * 1024  # bytes; what is longer is relayed all the same, but read only so far
KEPT_LINES = 5000  # a failed start of eight ranks leaves about 1500
# Errors older than this at the end are not its cause (a request's error, logged an hour ago).
CAUSE_WINDOW_S = 180.0


class Output:
    """Reads vLLM's output until its end: relays every byte at once, hands out whole lines.

    A line ends with a line feed or a carriage return (progress bars).
    """

    def __init__(self, source: int, target: int, on_line: Callable[[str], None]) -> None:
        self._source, self._target, self._on_line = source, target, on_line
        self._rest = b""
        self._kept: deque[tuple[float, str]] = deque(maxlen=KEPT_LINES)
        self._thread = threading.Thread(target=self._read, name="output", daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float) -> list[str]:
        """Wait for the end of the output; the last lines, oldest first."""
        self._thread.join(timeout_s)
        oldest = time.monotonic() - CAUSE_WINDOW_S
        return [line for when, line in tuple(self._kept) if when >= oldest]

    def _read(self) -> None:
        while piece := os.read(self._source, 65536):
            self._relay(piece)
            *lines, self._rest = re.split(rb"[\r\n]", self._rest + piece)
            self._rest = self._rest[:LONGEST_LINE]
            for line in lines:
                self._take(line)
        self._take(self._rest)
        os.close(self._source)

    def _relay(self, piece: bytes) -> None:
        # Whoever reads us may go first; the engine is to go on all the same.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            while piece:
                piece = piece[os.write(self._target, piece) :]

    def _take(self, line: bytes) -> None:
        text = line[:LONGEST_LINE].decode("utf-8", "replace")
        if text.strip():
            self._kept.append((time.monotonic(), text))
            self._on_line(text)


class Engine:
    """The running child and its guard."""

    def __init__(
        self,
        command: list[str],
        environ: Mapping[str, str],
        on_line: Callable[[str], None],
        relay_to: int,
    ) -> None:
        """Start it. Raises OSError where the program can't be run."""
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__))],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        source, sink = os.pipe()
        try:
            self._child = subprocess.Popen(
                command,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                process_group=self._guard.pid,
            )
        except OSError:
            self.sweep()
            os.close(source)
            raise
        finally:
            os.close(sink)
        self.output = Output(source, relay_to, on_line)

    def send(self, number: int) -> None:
        """Signal vLLM's first process, which tells the others itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child.pid, number)

    def sweep(self) -> None:
        """Kill whatever is left of the group, at once."""
        if self._guard.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()

    def wait(self) -> int:
        """Reap children until vLLM's first process has ended; its status as subprocess has it
        (negative: killed by that signal). As PID 1 others' orphans arrive here, too."""
        while True:
            pid, status = os.waitpid(-1, 0)
            for process in (self._child, self._guard):
                if process.pid == pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
            if pid == self._child.pid:
                return os.waitstatus_to_exitcode(status)

    def wait_all(self, timeout_s: float) -> None:
        """Reap the swept group, so that nothing outlives us; gives up after `timeout_s`."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == self._guard.pid:
                self._guard.returncode = -9
            if pid == 0:
                time.sleep(0.02)
