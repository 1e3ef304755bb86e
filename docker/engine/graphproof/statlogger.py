"""The proof on vLLM's own /metrics. vLLM imports this in its API processes only.

Its class is found by the entry point vllm.stat_logger_plugins. vLLM keeps its own loggers beside
it; only --disable-log-stats loses a part of its meaning, since vLLM then still counts (it says so).
"""

import functools
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Counter, Gauge
from vllm.v1.metrics.loggers import StatLoggerBase

from graphproof import counts, report
from graphproof.export import Exporter
from graphproof.report import ReportError, WorkerReport

LOG = logging.getLogger("vllm.graphproof")


@dataclass(frozen=True)
class Metrics:
    """Those of one process. The names are the launcher's, too, which has them before vLLM does."""

    steps: Counter
    tokens: Counter


@functools.cache
def metrics() -> Metrics:
    """Made at the first use, once: a registry takes a name only once."""
    made = Metrics(
        Counter(
            "engine_graph_steps", "Steps by kind and by the CUDA graph they ran in.",
            ("kind", "mode"),
        ),
        Counter("engine_graph_step_tokens", "Tokens of those steps.", ("kind", "mode")),
    )  # fmt: skip
    for kind in counts.KINDS:
        for mode in counts.MODES:  # there from the start, with 0
            made.steps.labels(kind, mode)
            made.tokens.labels(kind, mode)
    return made


@functools.cache
def tell_reports(folder: Path) -> None:
    """Gauges of what was captured, once. `max`: each API process sets the same."""
    reports = report.read_all(folder)
    captured = Gauge(
        "engine_graphs_captured", "Batch sizes with a captured graph, on every worker.",
        ("mode",), multiprocess_mode="max",
    )  # fmt: skip
    for mode, sizes in (
        ("FULL", [each.full_sizes for each in reports]),
        ("PIECEWISE", [each.piecewise_sizes for each in reports]),
    ):
        captured.labels(mode).set(len(set.intersection(*map(set, sizes))) if sizes else 0)
    for name, said, values in _singles(reports):
        known = [value for value in values if value is not None]
        if known:
            Gauge(name, said, multiprocess_mode="max").set(max(known))


def _singles(reports: list[WorkerReport]) -> list[tuple[str, str, list[float | None]]]:
    return [
        (
            "engine_graph_capture_seconds",
            "Seconds that capturing took on the slowest worker.",
            [each.capture_seconds for each in reports],
        ),
        (
            "engine_graph_capture_bytes",
            "GPU memory that the graphs of one worker take, at most.",
            [each.capture_bytes for each in reports],
        ),
        (
            "engine_compile_seconds",
            "Seconds that compiling or loading it took, at most.",
            [each.compile_seconds for each in reports],
        ),
    ]


class GraphStatLogger(StatLoggerBase):  # type: ignore[misc] # vLLM is not there for mypy
    """One for each engine of an API process; each exports for all engines."""

    def __init__(self, vllm_config: object, engine_index: int = 0) -> None:
        self._folder = os.environ.get("ENGINE_PROOF_DIR")
        self._exporter: Exporter | None = None

    def log_engine_initialized(self) -> None:
        """The workers are ready, so that their files are there."""
        if not self._folder:
            return
        try:
            metrics()
            tell_reports(Path(self._folder))
            self._exporter = Exporter(Path(self._folder))
        except (OSError, ReportError, ValueError) as error:
            self._stop(error)

    def record(self, *_args: object, **_kwargs: object) -> None:
        """After each step. What vLLM hands over isn't used: it changes between versions."""
        if self._exporter is None:
            return
        try:
            for kind, mode, steps, tokens in self._exporter.take():
                metrics().steps.labels(kind, mode).inc(steps)
                metrics().tokens.labels(kind, mode).inc(tokens)
        except (OSError, ValueError) as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        LOG.warning("graphproof: no more metrics of CUDA graphs: %s", error)
        self._exporter = None
