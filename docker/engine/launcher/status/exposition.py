"""The launcher's own metrics in Prometheus' text form, for GET /metrics on the status port. Pure.

The engine_graph* and engine_compile_seconds families stand on vLLM's own /metrics, too (the plugin
graphproof writes them there); these answer before vLLM listens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from graphproof.verdict import Verdict

from launcher.cudagraphs import graphstatus
from launcher.cudagraphs.graphstatus import KINDS, MODES
from launcher.cudagraphs.proof import Proof
from launcher.status.phases import Phase
from launcher.status.state import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
VERDICTS = ("in force", "partly", "eager", "not applicable", "unknown")
Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


@dataclass(frozen=True)
class Family:
    """One metric. A family whose value isn't known yet has no sample."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def text(snapshot: Snapshot, shown: Verdict, proof: Proof) -> str:
    """All families, each with its HELP and TYPE."""
    return "".join(map(_family, (*_of_graphs(proof), *_of_start(snapshot, shown))))


def _of_graphs(proof: Proof) -> Iterable[Family]:
    reports, counts = proof.reports, proof.counts
    yield Family(
        "engine_graph_steps_total", "counter", "Steps by kind and by the CUDA graph they ran in.",
        _table(counts.steps if counts else None),
    )  # fmt: skip
    yield Family(
        "engine_graph_step_tokens_total", "counter", "Tokens of those steps.",
        _table(counts.tokens if counts else None),
    )  # fmt: skip
    sizes = {
        "FULL": graphstatus.in_all(each.full_sizes for each in reports),
        "PIECEWISE": graphstatus.in_all(each.piecewise_sizes for each in reports),
    }
    yield Family(
        "engine_graphs_captured", "gauge", "Batch sizes with a captured graph, on every worker.",
        tuple(((("mode", name),), len(found)) for name, found in sizes.items()) if reports else (),
    )  # fmt: skip
    yield _single(
        "engine_graph_capture_seconds", "Seconds that capturing took on the slowest worker.",
        graphstatus.largest(each.capture_seconds for each in reports),
    )  # fmt: skip
    yield _single(
        "engine_graph_capture_bytes", "GPU memory that the graphs of one worker take, at most.",
        graphstatus.largest(each.capture_bytes for each in reports),
    )  # fmt: skip
    yield _single(
        "engine_compile_seconds", "Seconds that compiling or loading it took, at most.",
        graphstatus.largest(each.compile_seconds for each in reports),
    )  # fmt: skip


def _of_start(snapshot: Snapshot, shown: Verdict) -> Iterable[Family]:
    yield _states(
        "engine_graphs_verdict", "1 for the verdict on CUDA graphs.", "verdict",
        VERDICTS, shown.verdict,
    )  # fmt: skip
    yield _states(
        "engine_phase", "1 for the phase the engine is in.", "phase",
        get_args(Phase), snapshot.phase,
    )  # fmt: skip
    yield _single(
        "engine_start_seconds", "Seconds from the launcher's start to ready.",
        snapshot.start_seconds,
    )  # fmt: skip
    yield _single(
        "engine_debug", "1 in debug mode: eager, blocking and verbose.", int(snapshot.debug)
    )


def _table(counted: dict[str, dict[str, int]] | None) -> tuple[Sample, ...]:
    if counted is None:
        return ()
    return tuple(
        ((("kind", kind), ("mode", mode)), counted[kind][mode]) for kind in KINDS for mode in MODES
    )


def _single(name: str, help_text: str, value: float | None) -> Family:
    return Family(name, "gauge", help_text, () if value is None else (((), value),))


def _states(name: str, help_text: str, label: str, all_of: Iterable[str], now: str) -> Family:
    return Family(
        name, "gauge", help_text, tuple((((label, each),), int(each == now)) for each in all_of)
    )


def _family(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_labels(labels)} {value}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    # Values come from fixed sets without quotes, backslashes or line ends.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
