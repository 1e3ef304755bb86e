"""`.venv`: the gateway, nginx and the supervisor of local mode, and the developers' tools."""

from stackctl import venv
from stackctl.console import Console
from stackctl.errors import StackError
from stackctl.layout import Layout


def ensure(layout: Layout, console: Console) -> None:
    """Make .venv from the hashed lock unless it is current. Raises StackError."""
    stamp = venv.fingerprint(layout.tools_lock)
    if venv.is_current(layout.venv, stamp):
        return
    step = venv.Step(
        "tools",
        ("--require-hashes", "--no-deps", "-r", str(layout.tools_lock)),
        venv.count(layout.tools_lock),
    )
    venv.make(layout.venv, stamp, [step], console, layout.logs / "setup-tools.log")
    console.line("  tools: installed")


def require(layout: Layout) -> None:
    if not layout.venv_python.exists():
        raise StackError("found no .venv; wanted the stack's tools; fix: make setup")
