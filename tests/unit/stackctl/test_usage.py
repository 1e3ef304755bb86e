"""The verb `usage`: it runs the gateway's report where the gateway runs, and passes on its line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from common.checkout import Checkout

Fake = Callable[..., None]
REPORT = ["gateway", "python", "-m", "gateway.ledger"]
UP = json.dumps({"Service": "gateway", "State": "running", "ID": "1"})
DOWN = json.dumps({"Service": "gateway", "State": "exited", "ID": "1", "ExitCode": 0})
TABLE = "key  requests\nbob         1\n"


def in_docker(checkout: Checkout) -> None:
    (checkout.root / ".run" / "mode").write_text("cpu\n")


def calls(checkout: Checkout) -> list[str]:
    return (checkout.home / "docker.calls").read_text().splitlines()


def test_it_runs_in_the_gateways_container(checkout: Checkout, fake: Fake) -> None:
    in_docker(checkout)
    report = (["compose", "exec", "-T", *REPORT], 0, TABLE, "")
    fake("docker", [(["compose", "ps"], 0, UP, ""), report])
    done = checkout.stack("usage", "--by", "model", "--since=2027-01-31", "--key", "bob", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (0, TABLE, "")
    options = "--by=model --since=2027-01-31 --key=bob --json"
    assert calls(checkout)[-1] == f"compose exec -T {' '.join(REPORT)} {options}"


@pytest.mark.parametrize("listed", [DOWN, ""])
def test_it_runs_in_a_container_of_its_own_when_that_is_down(
    checkout: Checkout, fake: Fake, listed: str
) -> None:
    in_docker(checkout)
    report = (["compose", "run", "--rm", "--no-deps", "-T", *REPORT], 0, TABLE, " Creating\n")
    fake("docker", [(["compose", "ps"], 0, listed, ""), report])
    done = checkout.stack("usage")
    assert (done.returncode, done.stdout, done.stderr) == (0, TABLE, "")


@pytest.mark.parametrize(
    ("code", "said", "shown", "ended"),
    [
        (2, "usage: argument --since: found 'x'", "stack: argument --since: found 'x'\n", 2),
        (1, "usage: u.db cannot be read", "stack: u.db cannot be read\n", 1),
        (125, "Error: no such image", "stack: gateway: Error: no such image\n", 1),
    ],
)  # fmt: skip
def test_a_refusal_is_passed_on(
    checkout: Checkout, fake: Fake, code: int, said: str, shown: str, ended: int
) -> None:
    in_docker(checkout)
    report = (["compose", "run"], code, "", f" Container x Creating\n{said}\n")
    fake("docker", [(["compose", "ps"], 0, DOWN, ""), report])
    done = checkout.stack("usage", "--since", "x")
    assert (done.returncode, done.stdout, done.stderr) == (ended, "", shown)


def test_a_group_that_is_none_needs_no_docker(checkout: Checkout) -> None:
    in_docker(checkout)
    done = checkout.stack("usage", "--by", "hour")
    assert done.returncode == 2
    assert done.stderr == "stack: found --by hour; wanted key, model or day; fix: --by key\n"


def test_local_mode_asks_its_own_python(checkout: Checkout) -> None:
    (checkout.root / ".run" / "mode").write_text("local\n")
    missing = checkout.stack("usage")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "make setup" in missing.stderr
    (checkout.root / ".venv").symlink_to(Path(sys.prefix))
    done = checkout.stack("usage")
    assert (done.returncode, done.stdout) == (0, "no usage in the ledger for that\n"), done.stderr
    checkout.set_env(GATEWAY_USAGE_DB="off")
    off = checkout.stack("usage")
    assert (off.returncode, off.stderr.count("\n")) == (2, 1)
    assert "GATEWAY_USAGE_DB: found off" in off.stderr
