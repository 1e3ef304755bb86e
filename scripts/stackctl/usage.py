"""The verb `usage`: the gateway's own report, run where the gateway runs.

This package knows nothing of the ledger but the command that prints it.
"""

from stackctl import process, setup
from stackctl.compose import ComposeStack
from stackctl.config import Config
from stackctl.console import Console
from stackctl.errors import USAGE, StackError
from stackctl.layout import Layout
from stackctl.lifecycle import mode_in_force

REPORT = ("-m", "gateway.ledger")


def show(layout: Layout, config: Config, console: Console, options: list[str]) -> int:
    """Print the report. Raises StackError with its one line."""
    if mode_in_force(layout, config) == "local":
        done = _of_this_host(layout, config, options)
    else:
        done = ComposeStack(layout).in_gateway("python", *REPORT, *options)
    if done.rc != 0:
        raise StackError(done.last_line.removeprefix("usage: "), done.rc)
    console.line(done.out.rstrip("\n"))
    return 0


def _of_this_host(layout: Layout, config: Config, options: list[str]) -> process.Result:
    setup.require(layout)
    env = {"PYTHONPATH": str(layout.root), "GATEWAY_USAGE_DB": config.usage_db(layout)}
    argv = [str(layout.venv_python), "-P", *REPORT, *options]
    return process.run(argv, env=env, cwd=layout.root)


def options(by: str, filters: dict[str, str | None], as_json: bool) -> list[str]:
    """The report's options; a date or name that it does not take is refused there."""
    given = [f"--{name}={value}" for name, value in filters.items() if value is not None]
    return [f"--by={by}", *given, *(["--json"] if as_json else [])]


def check(by: str) -> None:
    """Said here, so that it needs no container. Raises StackError."""
    if by not in {"key", "model", "day"}:
        raise StackError(f"found --by {by}; wanted key, model or day; fix: --by key", USAGE)
