"""The hooks around workers in the shape of vLLM's."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import shaped
from graphproof import counts, hooks, report, verdict
from graphproof.report import WorkerReport
from shaped import SIZES, Breakable, Mode, V1Runner, V2Runner, step

BOTH = Mode.FULL_AND_PIECEWISE
DECODE, PROMPT = step([1] * 4, [3] * 4), step([30], [], new=1)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return shaped.install(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINE_PROOF_DIR", str(tmp_path))
    return tmp_path


def started(runner: V1Runner | V2Runner, **changes: object) -> shaped.Wrapped:
    """A worker in its wrapper, as an executor has it before the warm-up."""
    module = shaped.workers()
    hooks.install(module)
    wrapper = module.WorkerWrapperBase(shaped.Worker(runner, shaped.config(**changes)))
    wrapper.init_device()
    return wrapper


def run(wrapper: shaped.Wrapped, mode: Mode, what: object) -> None:
    wrapper.model_runner.next = mode
    assert wrapper.execute_model(what) == "output"


def only(folder: Path) -> WorkerReport:
    (made,) = report.read_all(folder)
    return made


def test_v1(vllm: SimpleNamespace, folder: Path) -> None:
    wrapper = started(V1Runner(vllm, BOTH, SIZES[:3]))
    assert not list(folder.iterdir())
    assert wrapper.compile_or_warm_up_model() == "times"
    made = only(folder)
    assert (made.vllm, made.torch, made.runner) == ("0.24.0", "2.11.0+cu130", "v1")
    assert (made.mode, made.full_sizes, made.piecewise_sizes) == (BOTH.name, SIZES, SIZES[:3])
    assert (made.graphs, made.capture_bytes, made.compile_seconds) == (68, 2**30, 20.5)
    assert made.capture_seconds is not None
    assert made.error is None
    assert made.memory == {
        "total": 1000, "free_at_start": 990, "requested": 900, "weights": 100, "non_torch": 30,
        "peak_activation": 50, "graphs_estimate": 10, "available_kv": 700,
    }  # fmt: skip
    assert counts.read_all(folder) == counts.Counts()  # the warm-up's own step isn't one
    for mode in (Mode.FULL, Mode.FULL, Mode.PIECEWISE, Mode.NONE):
        run(wrapper, mode, DECODE)
    run(wrapper, Mode.NONE, PROMPT)
    wrapper.model_runner.execute_model("a dummy for another rank")
    seen = counts.read_all(folder)
    assert seen.steps["decode"] == {"FULL": 2, "PIECEWISE": 1, "NONE": 1}
    assert seen.steps["prefill"] == {"FULL": 0, "PIECEWISE": 0, "NONE": 1}
    assert seen.tokens["prefill"]["NONE"] == 30
    assert seen.largest_eager_decode_tokens == 4


def test_v2(vllm: SimpleNamespace, folder: Path) -> None:
    wrapper = started(V2Runner(vllm, BOTH))
    wrapper.compile_or_warm_up_model()
    made = only(folder)
    assert (made.runner, made.mode, made.full_sizes) == ("v2", BOTH.name, SIZES)
    assert made.piecewise_sizes == SIZES
    assert made.error is None
    for mode in (Mode.FULL, Mode.PIECEWISE, Mode.NONE):
        run(wrapper, mode, DECODE)
        run(wrapper, mode, PROMPT)
    seen = counts.read_all(folder)
    assert seen.steps["decode"] == {"FULL": 1, "PIECEWISE": 1, "NONE": 1}
    assert seen.steps["prefill"] == {"FULL": 1, "PIECEWISE": 1, "NONE": 1}


def test_v2_without_a_manager(vllm: SimpleNamespace, folder: Path) -> None:
    runner = V2Runner(vllm, Mode.NONE)
    runner.cudagraph_manager = None
    wrapper = started(
        runner, model_config__enforce_eager=True, compilation_config__cudagraph_mode=Mode.NONE
    )
    wrapper.compile_or_warm_up_model()
    run(wrapper, Mode.FULL, DECODE)
    assert (only(folder).mode, only(folder).error) == ("NONE", None)
    assert counts.read_all(folder).steps["decode"]["NONE"] == 1


def test_the_model_that_is_not_compiled(vllm: SimpleNamespace, folder: Path) -> None:
    """V1 says PIECEWISE, and nothing was captured for it: the one silent case."""
    wrapper = started(V1Runner(vllm, BOTH, ()))
    wrapper.compile_or_warm_up_model()
    run(wrapper, Mode.PIECEWISE, PROMPT)
    assert counts.read_all(folder).steps["prefill"] == {"FULL": 0, "PIECEWISE": 0, "NONE": 1}
    assert verdict.judge([only(folder)], 1, None, "cuda").verdict == "partly"


def test_graphs_with_breaks(vllm: SimpleNamespace, folder: Path) -> None:
    wrapper = Breakable()
    for number, (size, capture) in enumerate(
        [(shaped.Size(8, 4), 1), (shaped.Size(16), 1), (shaped.Size(32), None)]
    ):
        wrapper.entries[number] = SimpleNamespace(capture=capture, batch_descriptor=size)
    vllm.breakable.add(wrapper)
    runner = V1Runner(vllm, BOTH, ())
    runner.capture_model = lambda: 1
    started(runner).compile_or_warm_up_model()
    assert (only(folder).full_sizes, only(folder).piecewise_sizes) == ((8,), (16,))


def test_memory_of_later_versions(vllm: SimpleNamespace, folder: Path) -> None:
    wrapper = started(V2Runner(vllm, BOTH))
    worker = wrapper.worker
    del worker.non_torch_memory
    worker.total_consumed, worker.peak_activation_memory = 130, 60
    wrapper.compile_or_warm_up_model()
    memory = only(folder).memory
    assert (memory["non_torch"], memory["peak_activation"]) == (30, 50)


def test_a_second_warm_up_counts_nothing_twice(vllm: SimpleNamespace, folder: Path) -> None:
    wrapper = started(V2Runner(vllm, BOTH))
    for _ in range(2):
        wrapper.compile_or_warm_up_model()
        run(wrapper, Mode.FULL, DECODE)
    assert counts.read_all(folder).steps["decode"] == {"FULL": 2, "PIECEWISE": 0, "NONE": 0}


@pytest.mark.parametrize("required", [True, False])
def test_required_graphs_stop_the_worker(
    vllm: SimpleNamespace, folder: Path, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    monkeypatch.setenv("ENGINE_REQUIRE_GRAPHS", str(int(required)))
    (folder / "notes-1.txt").write_text("Enforce eager set, disabling torch.compile\n")
    wrapper = started(V1Runner(vllm, Mode.NONE, ()), model_config__enforce_eager=True)
    if required:
        line = r"^CUDA graphs: nothing was captured; vLLM: 'Enforce eager .*; fix: take --enforce"
        with pytest.raises(RuntimeError, match=line):
            wrapper.compile_or_warm_up_model()
    else:
        wrapper.compile_or_warm_up_model()
    assert only(folder).notes == ("Enforce eager set, disabling torch.compile",)


@pytest.mark.parametrize(
    "changes", [{"device_config__device_type": "cpu"}, {"model_config__runner_type": "pooling"}]
)
def test_who_rightly_has_none_is_not_stopped(
    vllm: SimpleNamespace, folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    monkeypatch.setenv("ENGINE_REQUIRE_GRAPHS", "1")
    runner = V1Runner(vllm, Mode.NONE, ())
    wrapper = started(runner, model_config__enforce_eager=True, **changes)
    assert wrapper.compile_or_warm_up_model() == "times"
    assert only(folder).full_sizes == ()


def test_a_vllm_of_another_shape_goes_on(
    vllm: SimpleNamespace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_REQUIRE_GRAPHS", "1")
    runner = V1Runner(vllm, BOTH, SIZES)
    del runner.cudagraph_dispatcher
    wrapper = started(runner, compilation_config__compilation_time="long")
    assert wrapper.compile_or_warm_up_model() == "times"
    error = only(folder).error or ""
    assert "no model_runner.cudagraph_dispatcher" in error
    assert "compilation_time is of str" in error
    assert verdict.judge([only(folder)], 1, None, "cuda").verdict == "unknown"


def test_wrappers_of_another_shape(vllm: SimpleNamespace, folder: Path) -> None:
    vllm.wrappers.add("no wrapper")
    wrapper = started(V2Runner(vllm, BOTH))
    assert wrapper.compile_or_warm_up_model() == "times"
    assert "AttributeError" in (only(folder).error or "")


def test_no_way_to_see_the_mode(vllm: SimpleNamespace, folder: Path) -> None:
    wrapper = started(V2Runner(vllm, BOTH))
    wrapper.worker.use_v2_model_runner = False  # so that V1's decision is looked for
    assert wrapper.compile_or_warm_up_model() == "times"
    assert "_determine_batch_execution_and_padding" in (only(folder).error or "")
    assert wrapper.execute_model(DECODE) == "output"
    assert counts.read_all(folder) == counts.Counts()


@pytest.mark.parametrize("what", ["no step", SimpleNamespace(total_num_scheduled_tokens=3)])
def test_a_step_of_another_shape_goes_on(vllm: SimpleNamespace, folder: Path, what: object) -> None:
    wrapper = started(V2Runner(vllm, BOTH))
    wrapper.compile_or_warm_up_model()
    run(wrapper, Mode.FULL, what)
    assert "a step could not be counted" in (only(folder).error or "")
    run(wrapper, Mode.FULL, DECODE)
    assert counts.read_all(folder) == counts.Counts()


def test_a_decision_of_another_shape_goes_on(vllm: SimpleNamespace, folder: Path) -> None:
    wrapper = started(V1Runner(vllm, BOTH, SIZES))
    wrapper.compile_or_warm_up_model()
    wrapper.model_runner.next = "FULL"
    assert wrapper.execute_model(DECODE) == "output"
    assert "mode could not be read" in (only(folder).error or "")


def test_a_folder_that_is_gone_stops_nothing(
    vllm: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_PROOF_DIR", str(tmp_path / "gone"))
    wrapper = started(V2Runner(vllm, BOTH))
    assert wrapper.compile_or_warm_up_model() == "times"
    run(wrapper, Mode.FULL, DECODE)


def test_without_a_folder_nothing_is_touched(vllm: SimpleNamespace) -> None:
    wrapper = started(V2Runner(vllm, BOTH))
    assert "compile_or_warm_up_model" not in vars(wrapper.worker)


def test_installed_once_and_said_where_it_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    module = shaped.workers()
    hooks.install(module)
    first = module.WorkerWrapperBase.init_device
    hooks.install(module)
    assert module.WorkerWrapperBase.init_device is first
    del module.WorkerWrapperBase
    with caplog.at_level(logging.WARNING):
        hooks.install(module)
    assert "has no WorkerWrapperBase.init_device" in caplog.text
