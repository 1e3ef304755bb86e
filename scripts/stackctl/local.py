"""Local mode: launcher, gateway and nginx as supervised processes of this host. State in .run/."""

from collections.abc import Callable
from pathlib import Path

from stackctl import engine_env, envfile, nginx, process, programs, setup
from stackctl import ports as port_book
from stackctl.config import Config
from stackctl.console import Console
from stackctl.doctor import envcheck
from stackctl.errors import USAGE, StackError, problem
from stackctl.layout import Layout
from stackctl.programs import Program
from stackctl.reasons import telling
from stackctl.supervisor import Supervisor, configuration, leftovers

MARGIN_S = 30
PATIENCE = 3  # supervisord may be busy for a moment; silent this often in a row, it is gone


class LocalStack:
    """The running stack of one checkout."""

    def __init__(self, layout: Layout, config: Config) -> None:
        self._layout = layout
        self._config = config
        self._supervisor = Supervisor(layout)

    # ---- what `up` does, in its order ----

    def prepare(self, console: Console) -> None:
        """Everything that may fail before a running stack is touched: environments and model."""
        setup.ensure(self._layout, console)
        refused = envcheck.gateway_values(self._layout, self._config, "local")
        if refused:
            raise StackError("; also ".join(check.line for check in refused), USAGE)
        engine_env.ensure(self._layout, self._config, console)
        fetch(self._layout, self._config, console)

    def is_running(self) -> bool:
        return any(state.is_up for state in self._supervisor.states().values())

    def start(self, console: Console) -> None:
        """Bring the processes to the wanted settings, and say which were (re)started."""
        layout = self._layout
        for folder in (layout.logs, layout.programs, layout.nginx_out):
            folder.mkdir(parents=True, exist_ok=True)
        self._start_supervisor()
        alive = any(state.is_up for state in self._supervisor.states().values())
        ports = port_book.choose(layout, self._config.port, alive)
        port_book.record(layout, ports)
        wanted = (
            programs.engine(layout, self._config, ports),
            programs.gateway(layout, self._config, ports),
        )
        changed = [program.name for program in wanted if self._apply(program)]
        changed += self._apply_nginx(ports)
        console.line(f"  started: {', '.join(changed)}" if changed else "  nothing changed")

    def _start_supervisor(self) -> None:
        text = configuration(self._layout, programs.managed(self._config))
        path = self._layout.supervisor_conf
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if text == current and self._supervisor.is_alive():
            return
        self.stop()
        envfile.write_atomically(path, text, 0o600)
        self._supervisor.launch()

    def _apply(self, program: Program) -> bool:
        """Restart the program when its definition changed or it is not up."""
        path = self._layout.programs / f"{program.name}.json"
        text = program.as_json()
        same = path.exists() and path.read_text(encoding="utf-8") == text
        state = self._supervisor.states().get(program.name)
        if same and state and state.is_up:
            return False
        self._supervisor.stop(program.name)
        envfile.write_atomically(path, text, 0o600)
        self._supervisor.start(program.name)
        return True

    def _apply_nginx(self, ports: port_book.Ports) -> list[str]:
        """nginx takes new files without dropping a stream; only a new program restarts it."""
        layout = self._layout
        before = _contents(layout.nginx_out)
        variables = programs.nginx_variables(layout, self._config, ports)
        nginx.render(layout.root / "nginx" / "templates", layout.nginx_out, variables)
        if self._apply(programs.front(layout, self._config)):
            return ["nginx"]
        if _contents(layout.nginx_out) != before:
            self._supervisor.signal("nginx", "HUP")
            return ["nginx"]
        return []

    # ---- what others ask ----

    def watch(self) -> Callable[[], str | None]:
        """A question for later: has any process ended since now? Answers with its reason. One
        that supervisor has started again counts too, so a crash loop is seen at its first turn."""
        before = {name: state.since for name, state in self._supervisor.states().items()}

        silent = 0

        def trouble() -> str | None:
            nonlocal silent
            states = self._supervisor.states()
            silent = 0 if states else silent + 1
            if not states:
                if silent < PATIENCE:
                    return None
                return f"supervisord is gone; see {self._layout.logs / 'supervisord.log'}"
            ended = [
                n
                for n in programs.ORDER
                if not states[n].is_up or states[n].since != before.get(n, states[n].since)
            ]
            return self.reason(ended[0]) if ended else None

        return trouble

    def reason(self, name: str) -> str:
        """The last thing the program said, which for ours is the reason it ended with."""
        log = self._layout.logs / f"{name}.log"
        lines = tail(log, 40)
        return f"{name} stopped: {telling(lines)} (log: {log.relative_to(self._layout.root)})"

    def services(self) -> dict[str, str]:
        states = self._supervisor.states()
        return {
            name: _describe(states[name].name, states[name].pid) if name in states else "stopped"
            for name in programs.ORDER
        }

    def started_at(self, service: str) -> float:
        """Unix seconds of the process' start, 0 when it never started."""
        state = self._supervisor.states().get(service)
        return float(state.since) if state else 0.0

    def restart(self, service: str | None) -> None:
        for name in [service] if service else programs.ORDER:
            self._supervisor.stop(name)
            self._supervisor.start(name)

    def engines(self) -> tuple[str, ...]:
        """Their names, in the order of GATEWAY_UPSTREAMS."""
        return ("vllm",)

    def signal(self, service: str, name: str) -> None:
        self._supervisor.signal(service, name)

    def stop_engine(self) -> None:
        self._supervisor.stop("vllm")

    def stop(self) -> None:
        """Nothing of this checkout runs afterwards, whatever state it was in."""
        self._supervisor.shut_down(MARGIN_S)
        left = leftovers(self._layout)
        if left:
            pids = " ".join(map(str, left))
            raise problem(f"processes {pids} that do not end", "none", f"kill -9 {pids}")


def fetch(layout: Layout, config: Config, console: Console) -> None:
    """Get MODEL to where the engine finds it. Raises StackError with the download's own line."""
    layout.models.mkdir(parents=True, exist_ok=True)
    env = programs.engine_env(layout, config) | config.subset(("HF_ENDPOINT",))
    env["HF_TOKEN_PATH"] = str(layout.hf_token)
    argv: list[str | Path] = [layout.engine_python, "-P", "-m", "launcher.model.fetch"]
    done = process.follow(
        argv, lambda line: _show(console, line), env=env, log=layout.logs / "model.log"
    )
    if done.rc != 0:
        raise StackError(done.last_line, done.rc)


def _show(console: Console, line: str) -> None:
    text = line.strip()
    if text.startswith("model:"):
        console.progress(text)


def _describe(state: str, pid: int) -> str:
    return f"{state.lower()} (pid {pid})" if pid else state.lower()


def _contents(folder: Path) -> str:
    return programs.digest(*sorted(path for path in folder.rglob("*.conf")))


def tail(log: Path, count: int) -> list[str]:
    """The last non-empty lines of a log, from its last 64 kB."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 65536))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]
