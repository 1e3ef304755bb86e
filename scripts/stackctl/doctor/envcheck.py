"""Ask the launcher whether it takes the settings: the same code that will read them."""

import sys

from stackctl import names, process
from stackctl.config import Config
from stackctl.doctor.checks import Check
from stackctl.layout import Layout
from stackctl.mode import Mode


def launcher_values(layout: Layout, config: Config, mode: Mode) -> list[Check]:
    """One failed check for each line the launcher refuses a value with."""
    done = process.run(
        [sys.executable, "-P", "-m", "launcher", "--print-argv"],
        env={
            "PATH": config.environment.get("PATH", ""),
            "PYTHONPATH": str(layout.launcher_parent),
            "ENGINE_DEVICE": "cuda" if mode == "gpu" else "cpu",
            **config.subset(names.LAUNCHER),
            **({names.DEBUG: "1"} if config.debug else {}),
        },
        cwd=layout.root,
    )
    if done.rc == 0:
        return [Check("settings", "ok", "the launcher takes them")]
    lines = [line.strip() for line in done.err.splitlines() if line.strip()]
    return [_refused(line) for line in lines or [done.last_line]]


def token_value(layout: Layout) -> list[Check]:
    """A failed check when the download would refuse what stands in secrets/hf_token."""
    done = process.run(
        [sys.executable, "-P", "-m", "launcher.model.tokenfile", layout.hf_token],
        env={"PYTHONPATH": str(layout.launcher_parent)},
        cwd=layout.root,
    )
    return [] if done.rc == 0 else [_refused(done.last_line)]


def gateway_values(layout: Layout, config: Config, mode: Mode) -> list[Check]:
    """Failed checks for the GATEWAY_* values, by the gateway's own code; none without its .venv
    (in Docker modes the container judges, and `up` shows its line). Where the ledger lies is a
    place of the container in Docker modes, so it is left to that."""
    if not layout.venv_python.exists():
        return []
    done = process.run(
        [layout.venv_python, "-P", "-m", "gateway", "--check"],
        env={
            "PYTHONPATH": str(layout.root),
            "GATEWAY_API_KEYS_FILE": str(layout.api_keys),
            **config.subset(names.GATEWAY_TUNABLE),
            "GATEWAY_USAGE_DB": config.usage_db(layout) if mode == "local" else "off",
        },
        cwd=layout.root,
    )
    if done.rc == 0:
        return []
    return [_refused(line) for line in done.err.splitlines() if "found" in line] or [
        _refused(done.last_line)
    ]


def _refused(line: str) -> Check:
    """`VARIABLE: found …; wanted …; fix …` back into its parts."""
    name, _, rest = line.partition(": ")
    parts = [part.strip() for part in rest.split(";", 2)]
    if len(parts) != 3:
        return Check("settings", "fail", line, "a value in the range of .env.example", "edit .env")
    found, wanted, fix = parts
    return Check(
        "settings",
        "fail",
        f"{name}={found.removeprefix('found').strip()}",
        wanted.removeprefix("wanted").strip(),
        fix.removeprefix("fix").lstrip(": ").strip(),
    )
