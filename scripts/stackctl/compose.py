"""The stack in Docker. COMPOSE_FILE in .env says which files make it."""

from collections.abc import Callable

from stackctl import names, process
from stackctl.console import Console
from stackctl.containers import LASTING, Containers, Watch, argv
from stackctl.errors import FAILED, USAGE, StackError
from stackctl.layout import Layout
from stackctl.reasons import of_docker, telling

# The download's own exit statuses (docker/engine/launcher/model/fetcherror.py); Docker has others.
DOWNLOAD_CODES = frozenset({USAGE, *range(10, 17)})
LONG_S = 900.0  # a stop waits for answers that run


class ComposeStack:
    """The stack of one checkout in Docker."""

    def __init__(self, layout: Layout, *, debug: bool = False) -> None:
        self._layout = layout
        self._debug = {names.DEBUG: "1"} if debug else {}
        self._containers = Containers(layout.root)

    # ---- what `up` does, in its order ----

    def prepare(self, console: Console) -> None:
        """Build the images with Docker's own progress. Raises StackError with its last line."""
        console.line("  images: building (quick when nothing changed)")
        log = self._layout.logs / "build.log"
        done = process.follow(
            argv("--progress", "plain", "build"),
            lambda line: None if line.startswith("time=") else console.progress("images:", line),
            log=log,
            # An attestation gives an unchanged image a new digest with each build, and `up` would
            # then make its containers anew.
            env=process.clean_env({"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}),
            cwd=self._layout.root,
        )
        if done.rc != 0:
            raise StackError(f"images: {_why(done)} (log: {log.relative_to(self._layout.root)})")

    def start(self, console: Console) -> None:
        """Bring the containers to the wanted settings. What runs is touched last, once settings
        and model are known to be good. Raises StackError."""
        self._check_gateway()
        if not self.is_running():
            # They tell clients the phase while the model is fetched.
            self._act("up", "--detach", "--no-build", "--no-deps", "nginx", "gateway")
        self._fetch(console)
        # The download runs once more and finds all there.
        self._up()

    def _check_gateway(self) -> None:
        """The gateway's own judgement of settings and keys. Raises StackError with its lines."""
        check = ("run", "--rm", "--no-deps", "-T", "gateway", "python", "-m", "gateway", "--check")
        done = self._run(*check, timeout=120)
        if done.rc == USAGE:
            lines = [line for line in done.err.splitlines() if line.startswith("GATEWAY_")]
            raise StackError("; also ".join(lines) or done.last_line, USAGE)
        if done.rc != 0:
            raise StackError(f"gateway: {_why(done)}")

    def _fetch(self, console: Console) -> None:
        """Run the download: its lines are our progress, its reason and exit status ours."""
        done = process.follow(
            argv("run", "--rm", "--no-deps", "-T", "model"),
            lambda line: console.progress(line) if line.startswith("model:") else None,
            log=self._layout.logs / "model.log",
            cwd=self._layout.root,
        )
        if done.rc != 0:
            code = done.rc if done.rc in DOWNLOAD_CODES else FAILED
            raise StackError(telling(done.out.splitlines()), code)

    def _up(self) -> None:
        """`docker compose up -d`, however long an engine that is replaced has to drain."""
        done = process.follow(
            argv("up", "--detach", "--no-build", "--remove-orphans"),
            _unseen,
            log=self._layout.logs / "compose-up.log",
            env=process.clean_env(self._debug),
            cwd=self._layout.root,
        )
        if done.rc != 0:
            raise StackError(f"docker compose up: {_why(done)}")

    # ---- what others ask ----

    def is_running(self) -> bool:
        """Raises StackError when Docker does not say."""
        return any(c.state == "running" for c in self._containers.insist().values())

    def watch(self) -> Callable[[], str | None]:
        """A question for later: did a service end, or the engine start again, since now?"""
        return Watch(self._containers, self.reason)

    def started_at(self, service: str) -> float:
        """Unix seconds of the container's start, 0 when it cannot be told."""
        return self._containers.started_at(service)

    def reason(self, service: str) -> str:
        """The line of its log that says why it ended."""
        done = self._run("logs", "--no-log-prefix", "--no-color", "--tail", "40", service)
        return telling([line.strip() for line in done.out.splitlines() if line.strip()])

    def in_gateway(self, *command: str) -> process.Result:
        """Run a command in the gateway's container, or in one like it while that is down."""
        found = self._containers.insist().get("gateway")
        up = found is not None and found.state == "running"
        where = ("exec", "-T") if up else ("run", "--rm", "--no-deps", "-T")
        done = self._run(*where, "gateway", *command)
        if done.rc not in {0, FAILED, USAGE}:  # Docker's own
            raise StackError(f"gateway: {_why(done)}")
        return done

    def services(self) -> dict[str, str]:
        return self._containers.described()

    def logs(self, service: str | None, follow: bool, count: int) -> int:
        words = ["logs", "--tail", str(count), *(["--follow"] if follow else [])]
        return process.attached(
            argv(*words, *([service] if service else [])), cwd=self._layout.root
        )

    # ---- what others do ----

    def restart(self, service: str | None) -> None:
        self._act("restart", *([service] if service else LASTING))

    def engines(self) -> tuple[str, ...]:
        """Their names, in the order of GATEWAY_UPSTREAMS."""
        return ("vllm",)

    def signal(self, service: str, name: str) -> None:
        self._act("kill", "--signal", f"SIG{name}", service)

    def stop_engine(self) -> None:
        self._act("stop", "vllm")

    def stop(self) -> None:
        self._act("down", "--remove-orphans")

    def _act(self, *words: str) -> None:
        done = self._run(*words, timeout=LONG_S)
        if done.rc != 0:
            raise StackError(f"docker compose {words[0]}: {_why(done)}")

    def _run(self, *words: str, timeout: float = 60.0) -> process.Result:
        return process.run(argv(*words), cwd=self._layout.root, timeout=timeout)


def _unseen(_: str) -> None:
    """Compose's list of containers is not what people wait for; the log has it."""


def _why(done: process.Result) -> str:
    """The line of Docker's output that says what went wrong."""
    lines = [line.strip() for line in (done.err + "\n" + done.out).splitlines() if line.strip()]
    known = of_docker(lines)
    if known:
        return known
    errors = [line for line in lines if "error" in line.lower() or "failed" in line.lower()]
    return (errors or lines or [f"exit status {done.rc}"])[-1][:400]
