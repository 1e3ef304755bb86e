"""Python environments that are complete or absent: the stamp is written last.

Whatever stops the making (no network, a full disk, Ctrl-C) leaves no environment behind, so that
nothing half-made is ever started.
"""

import hashlib
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stackctl import process
from stackctl.console import Console
from stackctl.errors import StackError, problem

STAMP = ".stack-lock-sha256"
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|"
    r"Name or service not known|Network is unreachable|ConnectTimeout|ReadTimeout|"
    r"Connection refused|Max retries exceeded|ProxyError|Connection to .* timed out"
)
_NO_DISK = re.compile(r"No space left on device|Errno 28|Disk quota exceeded")
_NO_MATCH = re.compile(r"No matching distribution found")
_BAD_HASH = re.compile(r"DO NOT MATCH THE HASHES")


@dataclass(frozen=True)
class Step:
    """One `pip install`: what to say, its arguments, how many packages it will name, and the
    arguments to try when no configured source has them."""

    title: str
    arguments: tuple[str, ...]
    packages: int
    otherwise: tuple[str, ...] = ()


def fingerprint(lock: Path, *beside: str) -> str:
    """sha256 over what the environment is made of: the interpreter's version, the lock file, and
    what is installed `beside` it."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    digest.update(lock.read_bytes())
    for requirement in beside:
        digest.update(requirement.encode())
    return digest.hexdigest()


def is_current(folder: Path, stamp: str) -> bool:
    try:
        return (folder / STAMP).read_text(encoding="ascii").strip() == stamp
    except OSError:
        return False


def count(lock: Path) -> int:
    """Number of packages in a lock file."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return sum("==" in line and not line.startswith((" ", "#")) for line in lines)


def make(folder: Path, stamp: str, steps: Sequence[Step], console: Console, log: Path) -> None:
    """Create `folder` anew and install the steps in order. Raises StackError; then the environment
    that was there before stands as it was, and what runs from it goes on."""
    if folder.is_symlink():
        raise problem(
            f"{folder} is a link to an outdated environment", "a current one", f"rm {folder}"
        )
    before = folder.with_name(f"{folder.name}.before")
    if (folder / STAMP).exists():  # whole; what an earlier attempt put away is older
        shutil.rmtree(before, ignore_errors=True)
    if not before.exists() and folder.exists():
        folder.rename(before)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        console.progress(f"{steps[0].title}: creating the environment")
        made = process.run([sys.executable, "-m", "venv", folder], timeout=300)
        if made.rc != 0:
            raise explain(made, log)
        for step in steps:
            _install(folder, step, console, log)
        (folder / STAMP).write_text(stamp + "\n", encoding="ascii")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if before.exists():
            before.rename(folder)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _install(folder: Path, step: Step, console: Console, log: Path) -> None:
    progress = Progress(console, step)
    for arguments in filter(None, (step.arguments, step.otherwise)):
        argv: list[str | Path] = [folder / "bin" / "python", "-m", "pip", *_PIP, *arguments]
        done = process.follow(argv, progress.line, on_silence=progress.silence, log=log)
        if done.rc == 0:
            return
        if not _NO_MATCH.search(done.out):
            break
    raise explain(done, log)


# The bar is for people watching pip itself; we turn its lines into one.
_PIP = (
    "--disable-pip-version-check", "--no-input", "--retries", "2", "--timeout", "30",
    "install", "--progress-bar", "off",
)  # fmt: skip


class Progress:
    """pip's lines as one moving line: how many packages, which download, how long it takes."""

    def __init__(self, console: Console, step: Step) -> None:
        self._console = console
        self._step = step
        self._seen = 0
        self._started = time.monotonic()
        self._detail = ""
        self.text = ""

    def line(self, text: str) -> None:
        words = text.strip()
        if words.startswith(("Collecting ", "Processing ")):
            self._seen += 1
        if words.startswith(("Collecting ", "Downloading ", "Using cached ", "Processing ")):
            self._show(" ".join([words.split()[0].lower(), *_what(words)]))
        elif words.startswith("Installing collected packages"):
            self._seen = 0  # from here on pip counts nothing
            self._show("unpacking (this takes a while)")

    def silence(self) -> None:
        """pip says nothing while it unpacks; the seconds show that it lives."""
        self._show(self._detail)

    def _show(self, detail: str) -> None:
        self._detail = detail
        seconds = time.monotonic() - self._started
        count = f"{min(self._seen, self._step.packages)} of {self._step.packages} packages, "
        self.text = f"{count if self._seen else ''}{seconds:.0f} s: {detail}"
        self._console.progress(self._step.title, self.text)


def _what(line: str) -> list[str]:
    """The package or file, and its size when pip tells one."""
    name, *rest = line.split()[1:3] or [""]
    size = line[line.rindex("(") :] if rest and line.endswith("B)") else ""
    return [name.rsplit("/", 1)[-1], size] if size else [name.rsplit("/", 1)[-1]]


def explain(done: process.Result, log: Path) -> StackError:
    """One line for what pip wrote on many."""
    text = done.out + done.err
    if _NO_DISK.search(text):
        return problem("no space left on the disk", "8 GB free for the first run", "free some")
    if _BAD_HASH.search(text):
        return problem("a package whose hash is not the locked one", "the locked package",
                       "check the package index or proxy in use")  # fmt: skip
    if _NO_NETWORK.search(text):
        return problem("no network: the package index cannot be reached", "it for the first run",
                       "check the network or set HTTPS_PROXY, then run it again")  # fmt: skip
    errors = [line for line in text.splitlines() if line.strip().lower().startswith("error")]
    reason = errors[-1].strip() if errors else done.last_line
    return problem(f"pip stopped with: {reason[:300]}", "the locked packages", f"see {log}")
