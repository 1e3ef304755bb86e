"""GET /metrics on the status port, read by prometheus_client's own parser."""

from __future__ import annotations

from typing import get_args

import pytest
from launched import Start
from launcher.cudagraphs.proof import Proof
from launcher.status import exposition
from launcher.status.phases import Phase, Progress
from launcher.status.state import Snapshot
from prometheus_client.parser import text_string_to_metric_families
from reports import IN_FORCE, written

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]
NAMES = {
    "engine_graph_steps", "engine_graph_step_tokens", "engine_graphs_captured",
    "engine_graph_capture_seconds", "engine_graph_capture_bytes", "engine_compile_seconds",
    "engine_graphs_verdict", "engine_phase", "engine_start_seconds", "engine_debug",
}  # fmt: skip


def parsed(text: str) -> tuple[dict[str, str], Values]:
    types: dict[str, str] = {}
    values: Values = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        types[family.name] = family.type
        for sample in family.samples:
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return types, values


def test_they_answer_before_vllm_listens(start: Start) -> None:
    launcher = start("loading", ENGINE_DEVICE="cuda")
    launcher.wait_for("loading")
    types, values = parsed(launcher.metrics())
    assert types.keys() == NAMES
    assert values["engine_phase", (("phase", "loading"),)] == 1
    assert values["engine_graphs_verdict", (("verdict", "unknown"),)] == 1
    assert ("engine_start_seconds", ()) not in values  # not known yet
    assert values["engine_debug", ()] == 0


def test_a_ready_engine(start: Start) -> None:
    launcher = start("drains", ENGINE_DEVICE="cuda", REPORTS=written(IN_FORCE))
    status = launcher.wait_for("ready")
    types, values = parsed(launcher.metrics())
    assert types["engine_graph_steps"] == types["engine_graph_step_tokens"] == "counter"
    assert types["engine_graphs_captured"] == "gauge"
    assert values["engine_graph_steps_total", (("kind", "decode"), ("mode", "NONE"))] == 0
    assert values["engine_graphs_captured", (("mode", "FULL"),)] == 512
    assert values["engine_graph_capture_seconds", ()] == 5.0
    assert values["engine_graph_capture_bytes", ()] == 1_052_266_987
    assert values["engine_compile_seconds", ()] == 20.7
    assert values["engine_start_seconds", ()] == status["start"]["seconds"]
    assert values["engine_graphs_verdict", (("verdict", "in force"),)] == 1
    assert status["start"]["compile_cache"] == "cold"


@pytest.mark.parametrize("phase", get_args(Phase))
def test_one_phase_and_one_verdict_at_a_time(phase: Phase) -> None:
    snapshot = Snapshot(Progress(phase=phase), 0.0, 0.0, "m", ("m",), "cuda")
    text = exposition.text(snapshot, snapshot.graphs(Proof()), Proof())
    _, values = parsed(text)
    for name, wanted in (
        ("engine_phase", get_args(Phase)),
        ("engine_graphs_verdict", exposition.VERDICTS),
    ):
        found = {labels[0][1]: value for (each, labels), value in values.items() if each == name}
        assert found.keys() == set(wanted)
        assert sum(found.values()) == 1
    assert values["engine_phase", (("phase", phase),)] == 1
