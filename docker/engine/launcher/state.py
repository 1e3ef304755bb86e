"""What the launcher knows about its engine at this moment, shared between its threads."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from launcher.graphs import Finding
from launcher.metrics import Numbers
from launcher.phases import Phase, Progress
from launcher.proof import NOT_ON_CPU, NOT_PROVEN, Graphs
from launcher.settings import Device

FINAL = ("draining", "stopped", "failed")


@dataclass(frozen=True)
class Snapshot:
    """One consistent view. `since` and `started` are Unix times in seconds."""

    progress: Progress
    since: float
    started: float
    model: str
    served_model_names: tuple[str, ...]
    device: Device
    eager_by: Finding | None = None  # the setting that rules graphs out, where one does
    max_num_seqs: int | None = None  # as set; vLLM tells its own default nowhere

    def graphs(self) -> Graphs:
        """The verdict as far as it goes."""
        if self.device == "cpu":
            return NOT_ON_CPU
        if self.eager_by:
            return Graphs("eager", self.eager_by.found, self.eager_by.fix)
        return self.progress.graphs_seen or NOT_PROVEN

    def as_json(self, numbers: Numbers) -> dict[str, object]:
        """The status as served on the status port."""
        graphs = self.graphs()
        return {
            "phase": self.progress.phase,
            "ready": self.progress.phase == "ready",
            "message": self.progress.message,
            "since": round(self.since, 3),
            "started": round(self.started, 3),
            "model": self.model,
            "served_model_names": list(self.served_model_names),
            "engine_version": self.progress.engine_version,
            "device": self.device,
            "graphs": {"verdict": graphs.verdict, "reason": graphs.reason, "fix": graphs.fix},
            "kv_cache": {
                "tokens": self.progress.kv_cache_tokens,
                "usage": numbers.kv_cache_usage,
            },
            "max_num_seqs": self.max_num_seqs,
            "running": numbers.running,
            "waiting": numbers.waiting,
            "prompt_tokens_total": numbers.prompt_tokens_total,
            "generation_tokens_total": numbers.generation_tokens_total,
        }


@dataclass
class State:
    """The snapshot and its lock. `on_phase` is called once for each change of phase."""

    snapshot: Snapshot
    clock: Callable[[], float]
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
            since = self.clock() if moved else self.snapshot.since
            self.snapshot = replace(self.snapshot, progress=after, since=since)
        if moved:
            self.on_phase(after)

    def enter(self, phase: Phase, message: str) -> None:
        """Go to `phase`."""
        self.update(lambda progress: replace(progress, phase=phase, message=message))


def _rank(phase: Phase) -> int:
    return FINAL.index(phase) if phase in FINAL else -1
