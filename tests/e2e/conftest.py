"""A whole local stack in a checkout of its own, on free ports, started once for all tests here."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from common.local_stack import MODEL, UP_S, LocalStack, prepare, require_engine
from common.net import free_port


@dataclass(frozen=True)
class FirstUp(LocalStack):
    """With what its first `up` said."""

    first_up: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstUp]:
    require_engine()
    checkout = prepare(tmp_path_factory.mktemp("local"))
    second = checkout.root / ".run" / "models" / "second-model"
    second.mkdir()
    for file in MODEL.iterdir():
        (second / file.name).symlink_to(file)
    leave_stale_files(checkout.root / ".run")
    port = free_port()
    checkout.set_env(STACK_MODE="local", NGINX_PORT=str(port))
    stack = LocalStack(checkout, port)
    try:
        yield FirstUp(checkout, port, stack.stack("up", timeout=UP_S))
    finally:
        stack.stack("down", timeout=120)


def leave_stale_files(run: Path) -> None:
    """As after a reboot: names of a life before, with nothing behind them."""
    (run / "supervisord.pid").write_text("1\n")
    (run / "ports.json").write_text("{half")
    (run / "mode").write_text("local\n")
    (run / "programs").mkdir()
    (run / "programs" / "vllm.json").write_text("{}")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(run / "supervisor.sock"))
