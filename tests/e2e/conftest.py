"""A whole local stack in a checkout of its own, on free ports, started once for all tests here."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from common import checkout as checkouts
from common.checkout import ROOT, Checkout
from common.net import free_port

ENGINE = ROOT / ".run" / "engine"
MODEL = ROOT / ".run" / "models" / "smollm2-135m-instruct"
UP_S = 400.0  # 45 s on two idle cores; a host that runs other tests beside it is slower


@dataclass(frozen=True)
class LocalStack:
    """The checkout and the port its nginx has."""

    checkout: Checkout
    port: int
    first_up: subprocess.CompletedProcess[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def run(self) -> Path:
        return self.checkout.root / ".run"

    def stack(self, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return self.checkout.stack(*words, env=environment(), timeout=timeout)

    def key(self) -> str:
        return self.stack("key", "show", "default").stdout.strip()


def environment() -> dict[str, str]:
    """A whole PATH: vLLM looks for programs such as lscpu."""
    return {"PATH": os.environ["PATH"]}


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    if not (ENGINE / ".stack-lock-sha256").exists() or not MODEL.is_dir():
        missing = "no CPU engine or model under .run; scripts/stack setup --engine makes them"
        if os.environ.get("STACK_REQUIRE_ENGINE") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    checkout = checkouts.make(tmp_path_factory.mktemp("local"))
    models = checkout.root / ".run" / "models"
    models.mkdir(parents=True)
    (checkout.root / ".venv").symlink_to(ROOT / ".venv")
    (checkout.root / ".run" / "engine").symlink_to(ENGINE)
    (models / MODEL.name).symlink_to(MODEL)
    second = models / "second-model"
    second.mkdir()
    for file in MODEL.iterdir():
        (second / file.name).symlink_to(file)
    checkout.stack("init", env=environment())
    leave_stale_files(checkout.root / ".run")
    port = free_port()
    checkout.set_env(STACK_MODE="local", NGINX_PORT=str(port))
    nothing_yet = subprocess.CompletedProcess([], 0)
    stack = LocalStack(checkout, port, nothing_yet)
    try:
        yield replace(stack, first_up=stack.stack("up", timeout=UP_S))
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
