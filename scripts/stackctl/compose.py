"""The only file that calls docker compose. COMPOSE_FILE in .env says which files make the stack."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stackctl import process
from stackctl.console import Console
from stackctl.errors import USAGE, StackError
from stackctl.layout import Layout
from stackctl.reasons import telling

# A container of `docker compose run` bears its service's name, too, but is not the service.
ONE_OFF = "com.docker.compose.oneoff=True"
# Docker may be slow for a moment; a service is gone only when it is gone several times in a row.
PATIENCE = 5
SERVICES = ("nginx", "gateway", "vllm", "model")


@dataclass(frozen=True)
class Container:
    """One service's container as `docker compose ps` shows it."""

    service: str
    id: str
    state: str
    health: str
    exit_code: int
    published: tuple[int, ...]


def argv(*words: str) -> list[str]:
    return ["docker", "compose", *words]


def parse_ps(text: str) -> list[Container]:
    """One JSON object a line (Compose from 2.21) or one array (before)."""
    stripped = text.strip()
    if stripped.startswith("["):
        rows = json.loads(stripped)
    else:
        rows = [json.loads(line) for line in stripped.splitlines() if line.startswith("{")]
    return [_container(row) for row in rows if ONE_OFF not in str(row.get("Labels", ""))]


def _container(row: dict[str, Any]) -> Container:
    publishers = row.get("Publishers") or []
    return Container(
        service=str(row.get("Service", "")),
        id=str(row.get("ID", "")),
        state=str(row.get("State", "")),
        health=str(row.get("Health", "")),
        exit_code=int(row.get("ExitCode", 0)),
        published=tuple(p["PublishedPort"] for p in publishers if p.get("PublishedPort")),
    )


class ComposeStack:
    """The stack of one checkout in Docker."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def _run(self, *words: str, timeout: float = 60.0) -> process.Result:
        return process.run(argv(*words), cwd=self._layout.root, timeout=timeout)

    def containers(self) -> dict[str, Container]:
        """By service. Raises StackError when Docker does not say."""
        done = self._run("ps", "--all", "--format", "json")
        if done.rc != 0:
            raise StackError(f"docker compose ps: {done.last_line}")
        return {c.service: c for c in parse_ps(done.out)}

    def is_running(self) -> bool:
        return any(c.state == "running" for c in self.containers().values())

    def build(self, console: Console) -> None:
        """Build the images with Docker's own progress. Raises StackError with its last line."""
        console.line("  images: building (quick when nothing changed)")
        log = self._layout.logs / "build.log"
        done = process.follow(
            argv("--progress", "plain", "build"),
            lambda line: None if line.startswith("time=") else console.progress("images:", line),
            log=log,
            # An attestation gives an unchanged image a new digest with each build, and `up` would
            # then make its containers anew.
            env={**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},
            cwd=self._layout.root,
        )
        if done.rc != 0:
            raise StackError(
                f"images: {_telling(done)} (log: {log.relative_to(self._layout.root)})"
            )

    def check_gateway(self) -> None:
        """The gateway's own judgement of its settings and keys, before anything is made anew with
        them. Raises StackError with its lines."""
        check = ("run", "--rm", "--no-deps", "-T", "gateway", "python", "-m", "gateway", "--check")
        done = self._run(*check, timeout=120)
        if done.rc == USAGE:
            lines = [line for line in done.err.splitlines() if line.startswith("GATEWAY_")]
            raise StackError("; also ".join(lines) or done.last_line, USAGE)
        if done.rc != 0:
            raise StackError(f"gateway: {done.last_line}")

    def front(self) -> None:
        """nginx and gateway alone: they answer with the phase while the model is fetched."""
        self._checked("up", "--detach", "--no-build", "--no-deps", "nginx", "gateway")

    def fetch(self, console: Console) -> None:
        """Run the download by itself, before anything that runs is touched: its lines are our
        progress, its reason and exit status ours. Raises StackError."""
        log = self._layout.logs / "model.log"
        done = process.follow(
            argv("run", "--rm", "--no-deps", "-T", "model"),
            lambda line: console.progress(line) if line.startswith("model:") else None,
            log=log,
            cwd=self._layout.root,
        )
        if done.rc != 0:
            raise StackError(telling(done.out.splitlines()), done.rc)

    def up(self) -> None:
        """`docker compose up -d`; the download runs again and finds all there."""
        done = process.follow(
            argv("up", "--detach", "--no-build", "--remove-orphans"),
            _unseen,
            log=self._layout.logs / "compose-up.log",
            cwd=self._layout.root,
        )
        if done.rc != 0:
            raise StackError(f"docker compose up: {_telling(done)}")

    def watch(self) -> Callable[[], str | None]:
        """A question for later: did the engine end or start again since now?"""
        before = self._restarts("vllm")
        unasked = 0

        def trouble() -> str | None:
            nonlocal unasked
            try:
                containers = self.containers()
            except StackError as error:
                unasked += 1
                return str(error) if unasked >= PATIENCE else None
            unasked = 0
            for name in ("nginx", "gateway", "vllm"):
                now = containers.get(name)
                if now is None or now.state in {"exited", "restarting", "dead"}:
                    return f"{name} stopped: {self.reason(name)}"
            again = self._restarts("vllm") > before
            return f"vllm stopped: {self.reason('vllm')}" if again else None

        return trouble

    def _restarts(self, service: str) -> int:
        found = self.containers().get(service)
        if found is None:
            return 0
        done = process.run(["docker", "inspect", "--format", "{{.RestartCount}}", found.id])
        return int(done.out.strip()) if done.rc == 0 and done.out.strip().isdigit() else 0

    def started_at(self, service: str) -> float:
        """Unix seconds of the container's start, 0 when it cannot be told."""
        found = self.containers().get(service)
        if found is None:
            return 0.0
        done = process.run(["docker", "inspect", "--format", "{{.State.StartedAt}}", found.id])
        return parse_time(done.out.strip())

    def reason(self, service: str) -> str:
        return telling(self._log_lines(service, 40))

    def _log_lines(self, service: str, count: int) -> list[str]:
        done = self._run("logs", "--no-log-prefix", "--no-color", "--tail", str(count), service)
        return [line.strip() for line in done.out.splitlines() if line.strip()]

    def services(self) -> dict[str, str]:
        try:
            found = self.containers()
        except StackError as error:
            return dict.fromkeys(SERVICES, f"unknown ({error})")
        return {name: _describe(found.get(name)) for name in SERVICES}

    def restart(self, service: str | None) -> None:
        self._checked("restart", *([service] if service else ["nginx", "gateway", "vllm"]))

    def stop_engine(self) -> None:
        self._run("stop", "vllm", timeout=180)

    def stop(self) -> None:
        self._checked("down", "--remove-orphans")

    def _checked(self, *words: str) -> None:
        done = self._run(*words, timeout=900)
        if done.rc != 0:
            raise StackError(f"docker compose {words[0]}: {done.last_line}")

    def logs(self, service: str | None, follow: bool, count: int) -> int:
        words = ["logs", "--tail", str(count), *(["--follow"] if follow else [])]
        return process.attached(
            argv(*words, *([service] if service else [])), cwd=self._layout.root
        )


def _unseen(_: str) -> None:
    """Compose's list of containers is not what people wait for; the log has it."""


def parse_time(text: str) -> float:
    """Unix seconds of Docker's `2027-01-15T08:00:00.123456789Z`; 0 for anything else."""
    try:
        return datetime.fromisoformat(text[: len("2027-01-15T08:00:00")] + "+00:00").timestamp()
    except ValueError:
        return 0.0


def publishes(layout: Layout, port: int) -> bool:
    """Whether this checkout's own containers hold the port."""
    try:
        found = ComposeStack(layout).containers().values()
    except StackError:
        return False
    return any(port in container.published for container in found)


def _telling(done: process.Result) -> str:
    """The line of Docker's output that says what went wrong."""
    lines = [line.strip() for line in done.out.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "failed" in line.lower()]
    return (errors or lines or [f"exit status {done.rc}"])[-1][:400]


def _describe(container: Container | None) -> str:
    if container is None:
        return "absent"
    if container.state == "exited":
        return "done" if container.exit_code == 0 else f"exited ({container.exit_code})"
    return f"{container.state} ({container.health})" if container.health else container.state
