"""Real clients against the real stack: nginx, gateway and the CPU engine.

Each client has one file of tests that its own runner runs in an environment of its own. Here a file
is one test, which fails with what the runner said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from clients.environments import NODE_FILES, Environments
from common.local_stack import LocalStack

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]  # the first one installs and starts
HERE = Path(__file__).parent
RUN_S = 400.0  # most take under 30 s on two idle cores


@pytest.mark.parametrize(
    "name", ["openai_chat", "openai_responses", "anthropic_messages", "langchain_chat"]
)
def test_python(name: str, stack: LocalStack, installed: Environments) -> None:
    run(pytest_of(installed.python, name), HERE, stack)


def test_llamaindex(stack: LocalStack, installed: Environments) -> None:
    run(pytest_of(installed.llamaindex, "llamaindex_chat"), HERE, stack)


@pytest.mark.parametrize("name", ["openai", "ai-sdk"])
def test_node(name: str, stack: LocalStack, installed: Environments) -> None:
    """A module finds packages beside itself and above: so it is run from where they are."""
    for file in NODE_FILES.glob("*.mjs"):
        shutil.copy2(file, installed.node_folder)
    command = [str(installed.node), "--test", "--test-reporter=spec", f"{name}.test.mjs"]
    run(command, installed.node_folder, stack)


def pytest_of(python: Path, name: str) -> list[str]:
    folder = HERE / "python"
    options = ["-q", "-c", str(folder / "pytest.ini"), "--rootdir", str(folder)]
    return [str(python), "-m", "pytest", *options, str(folder / f"{name}.py")]


def run(command: list[str], folder: Path, stack: LocalStack) -> None:
    """Run a test runner to its end; AssertionError with its output unless all went well."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**surroundings(), "STACK_URL": stack.url, "STACK_KEY": stack.key(),
             "STACK_LOGS": str(stack.run / "logs")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def surroundings() -> dict[str, str]:
    """Nobody's keys or proxies: they would change what the clients do."""
    names = ("PATH", "HOME", "LANG", "TMPDIR")
    return {name: os.environ[name] for name in names if name in os.environ}
