"""One start of the engine: check, start, serve the status, and hand over to its life."""

import contextlib
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher import life, prediction, preflight, readiness
from launcher.console import say
from launcher.cudagraphs import graphs, plugin, proofdir, required, workers
from launcher.cudagraphs.proof import Prover
from launcher.host import apiservers, caches, cards
from launcher.life import Ended, Events, Signalled
from launcher.model.manifest import Manifest
from launcher.options import argv
from launcher.options.given import ConfigFile
from launcher.options.settings import Settings
from launcher.status import exposition, metrics, phases, server
from launcher.status.phases import Progress
from launcher.status.state import SHOUT, Snapshot, State, shouted
from launcher.supervise import Engine

NOT_FIT = 3  # exit code: the machine check failed


@dataclass(frozen=True)
class _Start:
    """All that one start works with."""

    settings: Settings
    environ: Mapping[str, str]
    fetched: Manifest
    state: State
    prover: Prover
    events: Events


def run(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run vLLM until it ends; the process' exit code. Main thread only (signals)."""
    began = time.monotonic()
    # A handler may only put into the queue: it can interrupt anything, a held lock included.
    events: Events = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, *life.ADMISSION):
        signal.signal(number, lambda got, _frame: events.put(Signalled(got)))
    if settings.debug:
        say(f"engine: {SHOUT}; not for traffic; end it with scripts/stack up")
    settings = apiservers.resolved(settings, environ, preflight.has_vllm_command())
    try:
        start = _prepared(settings, environ, events, began)
        with _served(start):
            for note in preflight.check(settings, environ, Path(start.fetched.path)):
                say(f"note: {note}")
            return _with_folder(start)
    except preflight.NotFitError as error:
        for line in error.lines:
            say(line)
        return NOT_FIT


def _prepared(
    settings: Settings, environ: Mapping[str, str], events: Events, began: float
) -> _Start:
    fetched = preflight.fetched_model(settings)
    file = required.config_file(settings)
    ruled_out = required.ruled_out(settings, environ, file)
    for note in graphs.notes(environ):
        say(f"note: {note}")
    now = time.time()
    snapshot = Snapshot(
        progress=Progress(phase="checking", message="checking the machine"),
        since=now,
        started=now,
        model=fetched.model,
        served_model_names=argv.served_names(settings, fetched.model),
        device=settings.device,
        ruled_out=ruled_out[0] if ruled_out else None,
        max_num_seqs=settings.max_num_seqs,
        api_servers=settings.api_server_count or 1,
        debug=settings.debug,
        predicted_kv_tokens=prediction.kv_tokens(settings, Path(fetched.path)),
    )
    state = State(snapshot, time.time, lambda: time.monotonic() - began, _announcer(settings))
    prover = Prover(
        proofdir.choose(environ), _workers(settings, file), settings.device, time.monotonic
    )
    return _Start(settings, environ, fetched, state, prover, events)


def _workers(settings: Settings, file: ConfigFile | None) -> int | None:
    given = (*(file.arguments if file else ()), *settings.extra_args)
    return workers.expected(settings.tensor_parallel_size, given)


def _announcer(settings: Settings) -> Callable[[Progress], None]:
    def announce(progress: Progress) -> None:
        say(f"engine: {progress.phase}: {shouted(progress.message, debug=settings.debug)}")

    return announce


@contextlib.contextmanager
def _served(start: _Start) -> Iterator[None]:
    """The status port, for the time of the block."""
    settings = start.settings
    scraper = metrics.Scraper(metrics.reachable(settings.host), settings.port, time.monotonic)
    status = server.json_page(lambda: _status(start, scraper))
    own = server.Page(exposition.CONTENT_TYPE, lambda: _metrics(start))
    pages = {"/": status, "/status": status, "/metrics": own}
    try:
        served = server.serve(settings.host, settings.status_port, pages)
    except OSError as error:
        raise preflight.NotFitError(
            (preflight.port_line("ENGINE_STATUS_PORT", settings.status_port, error),)
        ) from error
    try:
        yield
    finally:
        served.shutdown()
        served.server_close()


def _status(start: _Start, scraper: metrics.Scraper) -> dict[str, object]:
    # Before it is ready nothing listens, and asking would only cost time.
    snapshot = start.state.snapshot
    up = snapshot.progress.phase in ("ready", "draining")
    numbers = scraper.numbers() if up else metrics.Numbers()
    return snapshot.as_json(numbers, start.prover.newest())


def _metrics(start: _Start) -> str:
    snapshot, proof = start.state.snapshot, start.prover.newest()
    return exposition.text(snapshot, snapshot.graphs(proof), proof)


def _with_folder(start: _Start) -> int:
    folder = start.prover.folder
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(proofdir.made(folder))
        except OSError as error:
            raise preflight.NotFitError(
                (
                    f"TMPDIR: found {folder.parent} not usable ({error.strerror}); wanted a folder"
                    " for the workers' reports; fix: make it, writable for this user",
                )
            ) from error
        return _started(start, _cache(start, stack))


def _cache(start: _Start, stack: contextlib.ExitStack) -> dict[str, str]:
    """Variables of the compile caches, whose folder is held; none where no place is named."""
    root = start.environ.get(caches.VARIABLE, "").strip()
    if not root:
        return {}
    found = cards.query() if start.settings.device == "cuda" else ()
    try:
        held = caches.held(Path(root), caches.meaning(start.environ, found))
        return caches.environment(stack.enter_context(held))
    except OSError as error:
        raise preflight.NotFitError((caches.unusable(root, error),)) from error


def _started(start: _Start, cache: dict[str, str]) -> int:
    settings, state, events = start.settings, start.state, start.events
    if not events.empty():
        return 0  # told to stop before there was anything to stop
    command = argv.command(
        sys.executable,
        has_vllm_command=preflight.has_vllm_command(),
        vllm_arguments=argv.arguments(settings, start.fetched.path, start.fetched.model),
    )
    state.enter("starting", "starting vLLM")
    try:
        engine = Engine(
            command,
            _environment(start) | cache,
            lambda line: state.update(lambda progress: phases.follow(progress, line)),
            sys.stdout.fileno(),
        )
    except OSError as error:
        state.enter("failed", f"found {error.filename} not startable ({error.strerror})")
        return NOT_FIT
    ended = threading.Event()
    threading.Thread(target=lambda: events.put(Ended(engine.wait())), daemon=True).start()
    watched = (settings, state, start.prover, events, ended)
    threading.Thread(target=readiness.watch, args=watched, daemon=True).start()
    status = life.follow(settings, state, events, engine)
    ended.set()
    return status


def _environment(start: _Start) -> dict[str, str]:
    given = argv.environment(start.settings, start.environ)
    needed = start.settings.require_cuda_graphs
    return {
        **given,
        **plugin.environment(start.prover.folder, given, plugin.names(), required=needed),
    }
