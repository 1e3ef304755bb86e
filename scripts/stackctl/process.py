"""The one place that starts programs: argument lists, never a shell."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NOT_FOUND = 127
TIMED_OUT = 124


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
    """Our environment without the PYTHONPATH that scripts/stack set for this program alone."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
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
) -> Iterator[subprocess.Popen[str]]:
    """A running program with its output on one pipe; it is ended when the block is left."""
    child = subprocess.Popen(
        [str(part) for part in argv],
        env=dict(env) if env is not None else clean_env(),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if child.stdout:
            child.stdout.close()


def follow(
    argv: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run to the end, handing each output line to `on_line`; the whole output is also kept in
    `log` when one is given. `err` of the result is empty: both streams are one."""
    kept: list[str] = []
    with started(argv, env=env, cwd=cwd) as child:
        for line in child.stdout or ():
            kept.append(line)
            on_line(line.rstrip())
        rc = child.wait()
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(kept), encoding="utf-8")
    return Result(rc, "".join(kept), "")
