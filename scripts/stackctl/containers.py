"""What Docker says of this checkout's containers. It only asks; compose.py is what acts."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from stackctl import process
from stackctl.errors import StackError, problem

# A container of `docker compose run` bears its service's name, too, but is not the service.
ONE_OFF = "com.docker.compose.oneoff=True"
# Docker may be slow for a moment: it is believed to be gone only after so many questions in a row.
PATIENCE = 5
PAUSE_S = 0.5
ASK_S = 30.0
LASTING = ("nginx", "gateway", "vllm")
SERVICES = (*LASTING, "model")


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


class Containers:
    """The containers of the checkout at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def ask(self) -> dict[str, Container]:
        """By service; what is not there is absent. Raises StackError when Docker does not say."""
        done = process.run(argv("ps", "--all", "--format", "json"), cwd=self._root, timeout=ASK_S)
        if done.rc != 0:
            raise StackError(f"docker compose ps: {done.last_line}")
        try:
            return {c.service: c for c in parse_ps(done.out)}
        except (ValueError, TypeError) as error:
            raise StackError(f"docker compose ps: an answer that is no JSON ({error})") from error

    def insist(self) -> dict[str, Container]:
        """As `ask`, but one bad moment of Docker's is forgiven."""
        for _ in range(PATIENCE - 1):
            try:
                return self.ask()
            except StackError:
                time.sleep(PAUSE_S)
        return self.ask()

    def restarts(self, service: str) -> int | None:
        """How often Docker started its container again; None when that cannot be told."""
        text = self._inspect(service, "{{.RestartCount}}")
        return int(text) if text.isdigit() else None

    def started_at(self, service: str) -> float:
        """Unix seconds of its container's start, 0 when that cannot be told."""
        return parse_time(self._inspect(service, "{{.State.StartedAt}}"))

    def _inspect(self, service: str, template: str) -> str:
        try:
            found = self.insist().get(service)
        except StackError:
            return ""
        if found is None:
            return ""
        done = process.run(["docker", "inspect", "--format", template, found.id], timeout=ASK_S)
        return done.out.strip() if done.rc == 0 else ""

    def publish(self, port: int) -> bool:
        """Whether one of them holds the host's port."""
        try:
            return any(port in container.published for container in self.insist().values())
        except StackError:
            return False

    def described(self) -> dict[str, str]:
        """A word or two for each service."""
        try:
            found = self.ask()
        except StackError as error:
            return dict.fromkeys(SERVICES, f"unknown ({error})")
        return {name: _describe(found.get(name)) for name in SERVICES}


def _describe(container: Container | None) -> str:
    if container is None:
        return "absent"
    if container.state == "exited":
        return "done" if container.exit_code == 0 else f"exited ({container.exit_code})"
    return f"{container.state} ({container.health})" if container.health else container.state


def parse_time(text: str) -> float:
    """Unix seconds of Docker's `2027-01-15T08:00:00.123456789Z`; 0 for anything else."""
    try:
        return datetime.fromisoformat(text[: len("2027-01-15T08:00:00")] + "+00:00").timestamp()
    except ValueError:
        return 0.0


class Watch:
    """Called now and then: why the stack cannot become ready any more, or None. A service that
    ended counts, and an engine that Docker started again since the watch began."""

    def __init__(self, containers: Containers, reason: Callable[[str], str]) -> None:
        self._containers = containers
        self._reason = reason
        self._restarts = containers.restarts("vllm")
        self._unanswered = 0

    def __call__(self) -> str | None:
        try:
            found = self._containers.ask()
        except StackError as error:
            return self._silence(str(error))
        self._unanswered = 0
        for name in LASTING:
            now = found.get(name)
            if now is None or now.state in {"exited", "restarting", "dead"}:
                return self._stopped(name)
        return self._stopped("vllm") if self._came_again() else None

    def _silence(self, why: str) -> str | None:
        self._unanswered += 1
        if self._unanswered < PATIENCE:
            return None
        asked = f"{PATIENCE} times in a row: {why}"
        return str(problem(f"no answer from Docker {asked}", "one", "docker info says more"))

    def _came_again(self) -> bool:
        now = self._containers.restarts("vllm")
        if self._restarts is None:
            self._restarts = now
        return now is not None and now > (self._restarts or 0)

    def _stopped(self, name: str) -> str:
        return f"{name} stopped: {self._reason(name)}"
