"""The ledger's volume: the gateway's user writes it in a container whose root is read-only."""

from __future__ import annotations

import json

import pytest
from common.docker_project import Project

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

WRITE = """
import os
from gateway.ledger.store import Batch, Store
from gateway.ledger.target import parse
from gateway.ledger.opening import open_ledger
value = os.environ["GATEWAY_USAGE_DB"].strip()
assert open_ledger(value) is not None
store = Store(parse(value))
store.write(Batch(1, {(0, "a", "m", "/v1/messages", "ok"): [1, 3, 5, 0]}))
store.close()
state = os.stat("/var/lib/gateway")
assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (10001, 10001, 0o700), state
"""


def run(project: Project, *words: str, value: str | None = None) -> str:
    """Output of a program in a container of the gateway's service."""
    given = () if value is None else ("--env", f"GATEWAY_USAGE_DB={value}")
    done = project.compose("run", "--rm", "--no-deps", "-T", *given, "gateway", "python", *words)
    return done.stdout


def test_what_is_written_outlives_its_container(bare: Project) -> None:
    assert "no usage" in run(bare, "-m", "gateway.ledger")
    run(bare, "-c", WRITE)
    run(bare, "-c", WRITE, value=" ")  # B56: blank means unset, so it is the same file
    found = json.loads(run(bare, "-m", "gateway.ledger", "--json"))
    assert found["total"]["requests"] == 2
    by_stack = bare.run("scripts/stack", "usage", "--by", "model", "--json")
    assert json.loads(by_stack.stdout)["rows"][0]["completion_tokens"] == 10
