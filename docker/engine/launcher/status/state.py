"""What the launcher knows about its engine at this moment, shared between its threads."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from graphproof.verdict import Verdict

from launcher.cudagraphs import graphstatus, proof
from launcher.cudagraphs.graphs import Finding
from launcher.cudagraphs.proof import Known, Proof
from launcher.options.settings import Device
from launcher.status.metrics import Numbers
from launcher.status.phases import Phase, Progress

FINAL = ("draining", "stopped", "failed")
SERVES = ("ready", "draining")
DRAINED = "drained: no new requests; scripts/stack resume lets them in again"
SHOUT = "DEBUG MODE (eager, every kernel waited for, verbose: many times slower)"


@dataclass(frozen=True)
class Snapshot:
    """One consistent view. `since` and `started` are Unix times in seconds."""

    progress: Progress
    since: float
    started: float
    model: str
    served_model_names: tuple[str, ...]
    device: Device
    ruled_out: Finding | None = None  # the setting that leaves no graphs, where one does
    max_num_seqs: int | None = None  # as set; vLLM tells its own default nowhere
    api_servers: int = 1
    debug: bool = False
    admitting: bool = True  # False: drained by an operator, while vLLM goes on
    start_seconds: float | None = None  # from the launcher's start to ready
    predicted_kv_tokens: int | None = None

    @property
    def phase(self) -> Phase:
        """The phase as others see it: an engine that admits nothing drains."""
        at = self.progress.phase
        return "draining" if at == "ready" and not self.admitting else at

    def graphs(self, proved: Proof, *, serving: bool = False) -> Verdict:
        """The verdict on CUDA graphs, as far as it goes. serving: vLLM answers already, so that
        all its workers must have reported."""
        known = Known(
            device=self.device,
            debug=self.debug,
            ruled_out=self.ruled_out,
            downgrades=self.progress.downgrades,
            serving=serving or self.progress.phase in SERVES,
        )
        return proof.shown(proved, known)

    def as_json(self, numbers: Numbers, proved: Proof) -> dict[str, object]:
        """The status as served on the status port."""
        return {
            "phase": self.phase,
            "ready": self.phase == "ready",
            "admitting": self.admitting,
            "message": shouted(self._message(), debug=self.debug),
            "since": round(self.since, 3),
            "started": round(self.started, 3),
            "model": self.model,
            "served_model_names": list(self.served_model_names),
            "engine_version": self.progress.engine_version,
            "device": self.device,
            "debug": self.debug,
            "start": {
                "seconds": self.start_seconds,
                "compile_cache": self.progress.compile_cache,
            },
            "graphs": graphstatus.as_json(self.graphs(proved), proved),
            "kv_cache": {
                "tokens": self.progress.kv_cache_tokens,
                "usage": numbers.kv_cache_usage,
                "predicted_tokens": self.predicted_kv_tokens,
                "difference": self._difference(),
            },
            "max_num_seqs": self.max_num_seqs,
            "api_servers": self.api_servers,
            "running": numbers.running,
            "waiting": numbers.waiting,
            "prompt_tokens_total": numbers.prompt_tokens_total,
            "generation_tokens_total": numbers.generation_tokens_total,
        }

    def _message(self) -> str:
        return self.progress.message if self.phase == self.progress.phase else DRAINED

    def _difference(self) -> float | None:
        """How far the predicted KV cache is off the real one: 0.02 is 2 % too much."""
        real, predicted = self.progress.kv_cache_tokens, self.predicted_kv_tokens
        return round(predicted / real - 1, 4) if real and predicted is not None else None


def shouted(message: str, *, debug: bool) -> str:
    """`message`, with the debug mode said first: nobody may leave it on without seeing it."""
    return f"{SHOUT}: {message}" if debug else message


@dataclass
class State:
    """The snapshot and its lock. `on_phase` is called once for each change of phase; `clock` gives
    Unix time, `elapsed` the seconds since the launcher's start."""

    snapshot: Snapshot
    clock: Callable[[], float]
    elapsed: Callable[[], float]
    on_phase: Callable[[Progress], None]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, change: Callable[[Progress], Progress]) -> None:
        """Apply `change`; once the engine is told to stop, only the end may follow."""
        with self._lock:
            before = self.snapshot.progress
            after = change(before)
            if before.phase in FINAL and FINAL.index(before.phase) >= _rank(after.phase):
                after = replace(after, phase=before.phase, message=before.message)
            moved = after.phase != before.phase
            self.snapshot = replace(self.snapshot, progress=after)
            if moved:
                self.snapshot = self._moved(after.phase)
        if moved:
            self.on_phase(after)

    def _moved(self, phase: Phase) -> Snapshot:
        took = round(self.elapsed(), 1) if phase == "ready" else self.snapshot.start_seconds
        return replace(self.snapshot, since=self.clock(), start_seconds=took)

    def admit(self, admitting: bool) -> None:
        """Let requests in, or no more of them; before the engine is ready, from then on."""
        with self._lock:
            before, self.snapshot = self.snapshot, replace(self.snapshot, admitting=admitting)
        if before.admitting != admitting:
            text = "letting requests in" if admitting else DRAINED
            self.on_phase(replace(self.snapshot.progress, phase=self.snapshot.phase, message=text))

    def enter(self, phase: Phase, message: str) -> None:
        """Go to `phase`."""
        self.update(lambda progress: replace(progress, phase=phase, message=message))


def _rank(phase: Phase) -> int:
    return FINAL.index(phase) if phase in FINAL else -1
