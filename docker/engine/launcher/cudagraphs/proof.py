"""What the workers tell about their CUDA graphs, and what is said about them with it.

The plugin graphproof writes a report from inside each worker, and counters of the steps it ran.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphproof import counts as step_counts
from graphproof import report, verdict
from graphproof.counts import Counts
from graphproof.downgrades import Downgrade
from graphproof.report import ReportError, WorkerReport
from graphproof.verdict import Verdict

from launcher.cudagraphs.graphs import Finding
from launcher.options.settings import Device

READ_EVERY_S = 1.0
NOT_ON_CPU = Verdict("not applicable", "the CPU backend has no CUDA graphs", "")
NOT_YET = Verdict("unknown", "no report from inside the workers yet", "")
UNREADABLE = "keep launcher and graphproof of one version together"
DEBUG = Verdict(
    "eager", "DEBUG: debug mode runs without CUDA graphs", "end it with scripts/stack up"
)


@dataclass(frozen=True)
class Proof:
    """Reports and counted steps of one start, and the verdict over both."""

    judged: Verdict = NOT_YET
    reports: tuple[WorkerReport, ...] = ()
    counts: Counts | None = None
    unreadable: str | None = None  # why a report could not be read


@dataclass(frozen=True)
class Known:
    """What the launcher knows besides: settings, vLLM's own lines, and whether it serves yet."""

    device: Device
    debug: bool = False
    ruled_out: Finding | None = None
    downgrades: tuple[Downgrade, ...] = ()
    serving: bool = False


def shown(proof: Proof, known: Known) -> Verdict:
    """The verdict as the status tells it. Pure."""
    if proof.unreadable:
        return Verdict(
            "unknown", f"a worker's report can't be read: {proof.unreadable}", UNREADABLE
        )
    if not proof.reports:
        return _without_reports(known)
    judged = proof.judged
    if judged.verdict != "eager":
        return judged
    if known.debug:
        return DEBUG
    if known.ruled_out:
        return Verdict("eager", known.ruled_out.found, known.ruled_out.fix)
    return _explained(judged, known.downgrades)


def _without_reports(known: Known) -> Verdict:
    if known.device == "cpu":
        return NOT_ON_CPU
    if known.debug:
        return DEBUG
    if known.ruled_out:
        return Verdict("eager", known.ruled_out.found, known.ruled_out.fix)
    return verdict.judge((), None, None, known.device) if known.serving else NOT_YET


def _explained(judged: Verdict, seen: tuple[Downgrade, ...]) -> Verdict:
    """`judged` with the first line in which vLLM said why: where it read its settings, before any
    worker started."""
    if not seen:
        return judged
    told = judged.reason.partition("; vLLM: ")[0]
    return Verdict(judged.verdict, f"{told}; vLLM: {seen[0].line!r}", seen[0].fix)


class Prover:
    """Reads the workers' folder, at most once a second however often it is asked."""

    def __init__(
        self, folder: Path, expected: int | None, device: Device, clock: Callable[[], float]
    ) -> None:
        """folder: where they write; expected: how many workers there are, where that is known."""
        self.folder = folder
        self._expected, self._device, self._clock = expected, device, clock
        self._lock = threading.Lock()
        self._proof, self._until = Proof(), float("-inf")

    def newest(self) -> Proof:
        """What is there, at most a second old."""
        with self._lock:
            if self._clock() >= self._until:
                self._proof, self._until = self._read(), self._clock() + READ_EVERY_S
            return self._proof

    def now(self) -> Proof:
        """What is there at this moment."""
        with self._lock:
            self._proof, self._until = self._read(), self._clock() + READ_EVERY_S
            return self._proof

    def _read(self) -> Proof:
        if not self.folder.is_dir():
            return Proof()
        try:
            reports = report.read_all(self.folder)
            counts = step_counts.read_all(self.folder)
        except (OSError, ValueError, ReportError) as error:
            return Proof(unreadable=str(error))
        judged = verdict.judge(reports, self._expected, counts, self._device)
        return Proof(judged, tuple(reports), counts)
