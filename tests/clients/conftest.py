"""One real stack for all clients, and what they are installed in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clients import environments
from clients.environments import Environments
from common.local_stack import UP_S, LocalStack, prepare, require_engine
from common.net import free_port
from stackctl.console import Console
from stackctl.errors import StackError

# Files of the clients' own test runners, not of this one.
collect_ignore = ["python", "node"]


@pytest.fixture(scope="session")
def installed() -> Environments:
    require_engine()
    try:
        return environments.ensure(Console())
    except StackError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """With a tool parser: without one the engine refuses `tools`."""
    require_engine()
    checkout = prepare(tmp_path_factory.mktemp("clients"))
    port = free_port()
    checkout.set_env(STACK_MODE="local", NGINX_PORT=str(port), TOOL_CALL_PARSER="hermes")
    local = LocalStack(checkout, port)
    try:
        up = local.stack("up", timeout=UP_S)
        assert up.returncode == 0, up.stdout + up.stderr
        yield local
    finally:
        local.stack("down", timeout=120)
