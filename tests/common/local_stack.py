"""A whole local stack with the real CPU engine, in a checkout of its own on a free port.

    checkout = prepare(folder)
    checkout.set_env(...)
    stack = LocalStack(checkout, port)
    stack.stack("up", timeout=UP_S)

The environments and the model of the real checkout are linked in, not made again.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from common import checkout as checkouts
from common.checkout import ROOT, Checkout

ENGINE = ROOT / ".run" / "engine"
MODEL = ROOT / ".run" / "models" / "smollm2-135m-instruct"
UP_S = 400.0  # 45 s on two idle cores; a host that runs other tests beside it is slower


@dataclass(frozen=True)
class LocalStack:
    """The checkout and the port its nginx has."""

    checkout: Checkout
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def run(self) -> Path:
        return self.checkout.root / ".run"

    @property
    def engine_port(self) -> int:
        return int(json.loads((self.run / "ports.json").read_text())["engine"])

    def stack(self, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return self.checkout.stack(*words, env=environment(), timeout=timeout)

    def key(self) -> str:
        return self.stack("key", "show", "default").stdout.strip()


def environment() -> dict[str, str]:
    """A whole PATH: vLLM looks for programs such as lscpu."""
    return {"PATH": os.environ["PATH"]}


def require_engine() -> None:
    """Skip (or, where required, fail) without the CPU engine and its model."""
    if (ENGINE / ".stack-lock-sha256").exists() and MODEL.is_dir():
        return
    missing = "no CPU engine or model under .run; scripts/stack setup --engine makes them"
    if os.environ.get("STACK_REQUIRE_ENGINE") == "1":
        pytest.fail(missing)
    pytest.skip(missing)


def prepare(folder: Path) -> Checkout:
    """A checkout below `folder` after `init`, with everything that its first `up` would install."""
    checkout = checkouts.make(folder)
    models = checkout.root / ".run" / "models"
    models.mkdir(parents=True)
    (checkout.root / ".venv").symlink_to(ROOT / ".venv")
    (checkout.root / ".run" / "engine").symlink_to(ENGINE)
    (models / MODEL.name).symlink_to(MODEL)
    checkout.stack("init", env=environment())
    return checkout
