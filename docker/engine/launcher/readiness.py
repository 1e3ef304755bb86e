"""When the engine is ready: vLLM answers, and the graphs that must be there are proven."""

import threading

from graphproof.verdict import Verdict

from launcher import canary
from launcher.console import say
from launcher.cudagraphs.proof import Prover
from launcher.life import Events, Refused
from launcher.options.settings import Settings
from launcher.status import metrics
from launcher.status.state import State

HEALTH_EVERY_S = 0.5
WITHOUT = ("eager", "unknown")


def watch(
    settings: Settings, state: State, prover: Prover, events: Events, ended: threading.Event
) -> None:
    """Until the first answer of vLLM. It listens only once graphs are captured, and its workers
    have reported before."""
    host = metrics.reachable(settings.host)
    while not ended.wait(HEALTH_EVERY_S):
        answer = metrics.get(host, settings.port, "/health", timeout_s=5.0)
        if answer and answer[0] == 200:
            _answered(settings, state, prover, events)
            return


def _answered(settings: Settings, state: State, prover: Prover, events: Events) -> None:
    found = state.snapshot.graphs(prover.now(), serving=True)
    if settings.require_cuda_graphs and found.verdict in WITHOUT:
        state.enter("failed", refusal(found))
        events.put(Refused())
        return
    say(f"engine: graphs: {found.verdict}: {found.reason}")
    state.enter("warming", "the first generation")
    host = metrics.reachable(settings.host)
    seen = canary.generate(host, settings.port, state.snapshot.served_model_names[0])
    if seen.failed:
        state.enter("failed", f"canary: {seen.text}; wanted an engine that generates")
        events.put(Refused())
    else:
        say(f"engine: canary: {seen.text}")
        state.enter("ready", f"serving {', '.join(state.snapshot.served_model_names)}")


def refusal(found: Verdict) -> str:
    """Why an engine that must have graphs is stopped."""
    fixes = [found.fix] if found.fix else []
    return (
        f"CUDA graphs: {found.verdict}: {found.reason}; wanted graphs, since REQUIRE_CUDA_GRAPHS is"
        f" true; fix: {', or '.join([*fixes, 'set REQUIRE_CUDA_GRAPHS=false'])}"
    )
