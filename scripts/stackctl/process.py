"""The one place that starts programs: argument lists, never a shell."""

import os
import select
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stackctl import names

NOT_FOUND = 127
TIMED_OUT = 124
END_S = 10.0
SILENCE_S = 1.0
OURS_ALONE = frozenset({"PYTHONPATH", names.DEBUG})


@dataclass(frozen=True)
class Result:
    """What a program left behind. `rc` is 127 when there is no such program, 124 past the time."""

    rc: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit status {self.rc}"


def clean_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without the PYTHONPATH that scripts/stack set for this program alone, and
    without a debug mode left in a shell."""
    env = {name: value for name, value in os.environ.items() if name not in OURS_ALONE}
    env.update(extra or {})
    return env


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
) -> Result:
    """Run to the end with the output captured. Never raises for what the program does."""
    try:
        done = subprocess.run(
            [str(part) for part in argv],
            env=dict(env) if env is not None else clean_env(),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except (FileNotFoundError, PermissionError) as error:
        return Result(NOT_FOUND, "", str(error))
    except subprocess.TimeoutExpired:
        return Result(TIMED_OUT, "", f"{argv[0]} did not answer within {timeout:g} s")
    return Result(done.returncode, done.stdout, done.stderr)


def attached(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> int:
    """Run with our own terminal; returns the exit status."""
    try:
        return subprocess.run(
            [str(part) for part in argv],
            env=dict(env) if env is not None else clean_env(),
            cwd=cwd,
            check=False,
        ).returncode
    except FileNotFoundError:
        return NOT_FOUND


@contextmanager
def started(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A running program with its output on one pipe; it is ended when the block is left."""
    child = subprocess.Popen(
        [str(part) for part in argv],
        env=dict(env) if env is not None else clean_env(),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield child
    finally:
        end(child)
        if child.stdout:
            child.stdout.close()


def end(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL; the program is gone afterwards."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def follow(
    argv: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    on_silence: Callable[[], None] | None = None,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run to the end, handing each output line to `on_line`, and calling `on_silence` for each
    second without one; the whole output is also kept in `log`. `err` of the result is empty: both
    streams are one."""
    kept: list[str] = []
    with started(argv, env=env, cwd=cwd) as child:
        for line in _lines(child):
            if line is None:
                if on_silence:
                    on_silence()
                continue
            kept.append(line)
            on_line(line)
        rc = child.wait()
    text = "".join(f"{line}\n" for line in kept)
    if log is not None:
        _keep(log, text)
    return Result(rc, text, "")


def _keep(log: Path, text: str) -> None:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text, encoding="utf-8")
    except OSError as error:  # a write that fails does not say where
        raise OSError(error.errno, error.strerror, error.filename or str(log)) from error


def _lines(child: subprocess.Popen[bytes]) -> Iterator[str | None]:
    """Lines as they come, None for each silent second. A CR ends a line too (progress bars)."""
    if child.stdout is None:
        return
    handle = child.stdout.fileno()
    rest = b""
    while True:
        if not select.select([handle], [], [], SILENCE_S)[0]:
            yield None
            continue
        data = os.read(handle, 65536)
        if not data:
            break
        *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip() for line in lines if line)
    if rest:
        yield rest.decode("utf-8", "replace").rstrip()
