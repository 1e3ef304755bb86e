"""The only file that prints: plain lines, progress that overwrites itself on a terminal, errors.

No colour and no cursor movement when the output is not a terminal, so that logs stay readable.
"""

import shutil
import sys
import time
from typing import TextIO

QUIET_REPEAT_S = 10.0  # without a terminal, the same step is repeated at most this often


class Console:
    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._live = self._out.isatty()
        self._open_line = False
        self._last = ("", 0.0)

    @property
    def is_terminal(self) -> bool:
        return self._live

    def line(self, text: str = "") -> None:
        self._close_line()
        print(text, file=self._out, flush=True)

    def write(self, text: str) -> None:
        """Text without a line end, for streamed answers."""
        print(text, end="", file=self._out, flush=True)

    def progress(self, step: str, detail: str = "") -> None:
        """Show where `step` stands. A terminal gets one line that changes; a log gets a line for
        each new step and now and then the detail."""
        text = f"  {step} {detail}".rstrip()
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{text[:width]}", end="", file=self._out, flush=True)
            self._open_line = True
            return
        last_step, when = self._last
        if step == last_step and time.monotonic() - when < QUIET_REPEAT_S:
            return
        self._last = (step, time.monotonic())
        print(text, file=self._out, flush=True)

    def note(self, text: str) -> None:
        """For the user beside an output that a program may read."""
        self._close_line()
        print(text, file=self._err, flush=True)

    def error(self, text: str) -> None:
        self._close_line()
        print(f"stack: {text}", file=self._err, flush=True)

    def _close_line(self) -> None:
        if self._open_line:
            print("\r\x1b[2K", end="", file=self._out, flush=True)
            self._open_line = False
        self._last = ("", 0.0)
