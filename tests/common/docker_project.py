"""A copy of the checkout as a Compose project of its own, for tests with a real Docker engine.

    with Project.create(tmp_path, {"STACK_MODE": "cpu"}) as project:
        project.compose("up", "-d")

Its name starts with `stacktest-`, so that tests/standins/sweep.sh finds what a killed run left.
Leaving the block removes containers, networks and volumes; images stay (they are the build cache).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from common.checkout import listed
from common.compose import ROOT
from common.net import free_port

T = TypeVar("T")
PREFIX = "stacktest-"
BUILD_S = 900  # a first build installs the gateway's packages and materialises the model


def wait_until(ask: Callable[[], T], timeout_s: float, what: str) -> T:
    """The first true answer of `ask`; AssertionError naming `what` after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.2)


def copy_checkout(target: Path) -> None:
    """What git tracks, and what it would track, as a clone would have it."""
    for name in listed():
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


@dataclass(frozen=True)
class Project:
    """One checkout copy, its Compose project name and its published port."""

    root: Path
    name: str
    port: int
    environment: Mapping[str, str]

    @classmethod
    def create(cls, root: Path, settings: Mapping[str, str] | None = None) -> Project:
        """Copy the checkout to `root`. `settings` join the environment of every command."""
        copy_checkout(root)
        name = PREFIX + secrets.token_hex(4)
        port = free_port()
        own = {"COMPOSE_PROJECT_NAME": name, "NGINX_PORT": str(port)}
        inherited = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        environment = inherited | own | dict(settings or {})
        return cls(root, name, port, environment)

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.logs()[-20_000:])  # noqa: T201 - pytest shows it with the failure
        self.compose("down", "--volumes", "--timeout", "5", "--remove-orphans", check=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(
        self, *command: str, check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` in the checkout copy; a failure shows its whole output."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=timeout,
        )
        shown = f"{' '.join(command)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert not check or done.returncode == 0, shown
        return done

    def compose(
        self, *arguments: str, check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return self.run("docker", "compose", *arguments, check=check, timeout=timeout)

    def stack(
        self, *arguments: str, check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """The operator's CLI of the copy."""
        return self.run("scripts/stack", *arguments, check=check, timeout=timeout)

    def build(self, *services: str) -> None:
        self.compose("build", *services, timeout=BUILD_S)

    def write_token(self, data: bytes) -> None:
        """Replace secrets/hf_token, with the mode that the scheme demands."""
        path = self.root / "secrets" / "hf_token"
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o444)

    def logs(self, *services: str) -> str:
        done = self.compose("logs", "--no-color", *services, check=False)
        return done.stdout + done.stderr

    def container(self, service: str) -> str:
        """The id of the service's only container, running or not. Empty when there is none."""
        return self.compose("ps", "--all", "--quiet", service, check=False).stdout.strip()

    def inspect(self, service: str) -> dict[str, Any]:
        done = self.run("docker", "inspect", self.container(service))
        return dict(json.loads(done.stdout)[0])

    def health(self, service: str) -> str:
        """starting, healthy or unhealthy; none without a check."""
        health = self.inspect(service)["State"].get("Health", {})
        return str(health.get("Status", "none"))

    def address(self, service: str, network: str) -> str:
        networks = self.inspect(service)["NetworkSettings"]["Networks"]
        return str(networks[f"{self.name}_{network}"]["IPAddress"])

    def exec(
        self, service: str, *command: str, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return self.compose("exec", "-T", service, *command, check=check, timeout=timeout)

    def leftovers(self) -> list[str]:
        """Containers, networks and volumes that bear this project's label."""
        label = f"label=com.docker.compose.project={self.name}"
        lists: Sequence[tuple[str, ...]] = (
            ("ps", "-aq"),
            ("network", "ls", "-q"),
            ("volume", "ls", "-q"),
        )
        return [
            f"{words[0]} {line}"
            for words in lists
            for line in self.run("docker", *words, "--filter", label).stdout.split()
        ]
