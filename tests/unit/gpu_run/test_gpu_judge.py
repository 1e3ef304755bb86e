"""What the GPU run calls wrong."""

from __future__ import annotations

from typing import Any

import pytest
from gpu import judge, together
from gpu_rows import case, graphs, row

NOTHING = {"FULL": 0, "PIECEWISE": 0, "NONE": 0}


def wrong(name: str, device: str = "cuda", host: str = "", **more: Any) -> list[str]:  # noqa: ANN401 - JSON
    of, seen = case(name), row(name, **more)
    return [
        *judge.graphs(of, seen, device), *judge.start(of, seen, device),
        *judge.prediction(of, seen), *judge.measured(of, seen, host), *judge.promise(seen),
        *judge.debug(of, seen), *judge.loads(seen), *judge.tokens(seen, {}),
    ]  # fmt: skip


def test_what_is_as_it_has_to_be() -> None:
    assert wrong("warm", host="NVIDIA H200; vLLM 0.24.0") == []


LOST = graphs(steps={"decode": NOTHING | {"NONE": 100}, "prefill": NOTHING})
SOME = graphs(steps={"decode": NOTHING | {"FULL": 90, "NONE": 10}, "prefill": NOTHING})
FAILED = {"streams": 2, "prompt": 30, "tokens": 64, "failed": 1, "seconds": 0.5}


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            {"graphs": graphs(verdict="partly", reason="why")},
            "graphs partly (why), wanted in force",
        ),
        ({"graphs": graphs(full_sizes=[])}, "no full_sizes"),
        ({"graphs": LOST}, "no decode step ran in a graph"),
        ({"graphs": SOME}, "10% of decode steps without a graph"),
        ({"start": {"seconds": 60.0, "compile_cache": "cold"}}, "the start was cold, wanted warm"),
        ({"difference": 0.04}, "KV cache +4.0% off its prediction"),
        ({"difference": None}, "no KV-cache prediction"),
        ({"kv_predicted": 950_000}, "prediction +4.6% off 908,560"),
        ({"fit": {"max_concurrency": 300, "context": 4096}}, "fit promised 300 requests"),
        ({"debug": True, "graphs": graphs(verdict="eager")}, "debug True in status"),
        ({"load": [FAILED]}, "1 of 2 streams failed"),
        ({"graphs": graphs(tokens={"decode": NOTHING | {"FULL": 3}})}, "3 tokens in the counters"),
    ],
)
def test_what_is_not(seen: dict[str, Any], said: str) -> None:
    found = wrong("warm", host="NVIDIA H200; vLLM 0.24.0", **seen)
    assert len(found) == 1
    assert found[0].startswith(said)


def test_another_gpu_or_vllm_is_not_held_against_what_an_h200_gave() -> None:
    for host in ("NVIDIA L40S; vLLM 0.24.0", "NVIDIA H200; vLLM 0.33.0"):
        assert wrong("warm", host=host, kv_predicted=300_000) == []


def test_a_shape_is_held_against_what_fit_promised_alone() -> None:
    seen = {"graphs": graphs(verdict="eager"), "difference": 0.2}
    assert wrong("shape-gemma2-9b", **seen) == []
    promised = {"max_concurrency": 1, "context": 10**6}
    assert len(wrong("shape-gemma2-9b", fit=promised, **seen)) == 1


def test_a_cpu_has_no_graphs_and_compiles_nothing() -> None:
    seen = {"graphs": graphs(verdict="not applicable"), "start": {"compile_cache": None}}
    assert wrong("warm", device="cpu", **seen) == []
    assert wrong("warm", device="cpu") == [
        "graphs in force (FULL_AND_PIECEWISE: 102 graphs), wanted not applicable"
    ]


def test_debug_is_shouted() -> None:
    seen = {"graphs": graphs(verdict="eager"), "debug": True}
    assert wrong("debug", **seen, message="DEBUG: ready") == []
    assert wrong("debug", **seen, message="ready") == ["debug True in status (ready), wanted True"]


def test_a_refusal_ends_by_itself_with_its_reason() -> None:
    of = case("refused-level-0")
    assert judge.refused(of, 2, None, "VLLM_EXTRA_ARGS: found -O0 (level 0)") == []
    assert len(judge.refused(of, None, "ready", "-O0")) == 1
    assert judge.refused(of, 3, None, "out of memory") == ["its line lacks '-O0'"]


def test_counters_of_two_pages() -> None:
    page = (
        "# TYPE engine_graph_steps counter\n"
        'engine_graph_steps_total{kind="decode",mode="FULL"} 15.0\n'
        'engine_graph_steps_total{mode="NONE",kind="prefill",engine="0"} 1.0\n'
        'engine_graph_steps_total{kind="decode",mode="NONE"} 0.0\n'
    )
    assert judge.counters(page, "engine_graph_steps_total") == {
        'kind="decode",mode="FULL"': 15.0,
        'kind="prefill",mode="NONE"': 1.0,
    }
    assert judge.pages(page, page) == []
    assert len(judge.pages(page, page.replace("15.0", "14.0"))) == 1


def start(seconds: float, cache: str | None) -> dict[str, object]:
    return {"start": {"seconds": seconds, "compile_cache": cache}}


@pytest.mark.parametrize(("seconds", "held"), [(60.0, True), (90.0, False)])
def test_a_warm_start_is_held_against_the_cold_one(seconds: float, held: bool) -> None:
    cold = row("in-force", **start(180.0, "cold"))
    assert together.findings([cold]) == []
    (found,) = together.findings([cold, row("warm", **start(seconds, "warm"))])
    assert (round(found.value, 2), found.held) == (round(seconds / 180, 2), held)


def test_without_compiling_there_is_no_warm_start() -> None:
    rows = [row("in-force", **start(48.0, None)), row("warm", **start(55.0, None))]
    assert together.findings(rows) == []


def load(*seconds: float) -> list[dict[str, object]]:
    return [{"streams": 256, "tokens": 65536, "failed": 0, "seconds": each} for each in seconds]


def test_api_servers_are_held_against_one() -> None:
    one, four = row("warm", load=load(9.0, 8.0)), row("api-servers-by-cores", load=load(6.4, 7.0))
    assert together.findings([one, four]) == []  # few cores: auto is one, too
    (found,) = together.findings([one, four | {"api_servers": 4}])
    assert (found.what, found.value) == ("4 API servers / one, 256 streams", 1.25)
    assert found.held
