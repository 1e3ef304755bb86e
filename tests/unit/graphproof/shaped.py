"""Workers in the shape of vLLM's: the names that tests/data/vllm_hooks has for the real ones, and
of their behaviour what the hooks see. A GPU's worker cannot run here; the real one of a CPU does
in tests/engine."""

from __future__ import annotations

import enum
import sys
import types
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

SIZES = (1, 2, 4, 8)
Mode = enum.Enum(
    "Mode",
    {"NONE": 0, "PIECEWISE": 1, "FULL": 2, "FULL_AND_PIECEWISE": (2, 1)},
)


@dataclass(frozen=True)
class Size:
    """A BatchDescriptor."""

    num_tokens: int
    num_reqs: int | None = None


@dataclass(eq=False)
class Wrapper:
    """A CUDAGraphWrapper."""

    runtime_mode: Mode
    concrete_cudagraph_entries: dict[Size, Any] = field(default_factory=dict)


@dataclass
class Cached:
    """As vLLM's CachedRequestData."""

    resumed_req_ids: set[str] = field(default_factory=set)
    num_output_tokens: list[int] = field(default_factory=list)


@dataclass
class Step:
    """As vLLM's SchedulerOutput."""

    num_scheduled_tokens: dict[str, int]
    scheduled_cached_reqs: Cached
    scheduled_new_reqs: list[object] = field(default_factory=list)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


def step(tokens: list[int], made: list[int], new: int = 0, resumed: int = 0) -> Step:
    """tokens: scheduled per request; made: output tokens of those that ran before."""
    names = [f"r{number}" for number in range(len(tokens))]
    cached = Cached(set(names[:resumed]), made)
    return Step(dict(zip(names, tokens, strict=True)), cached, [object()] * new)


@dataclass(eq=False)
class Breakable:
    """A BreakableCUDAGraphWrapper."""

    entries: dict[object, Any] = field(default_factory=dict)


def install(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The modules that graphproof.inside imports; what it reads of them can be set."""
    state = SimpleNamespace(
        wrappers=set(),
        breakable=set(),
        counter=SimpleNamespace(num_cudagraph_captured=0),
        envs=SimpleNamespace(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=True),
    )
    cuda_graph = {"CUDAGraphWrapper": SimpleNamespace(_all_instances=state.wrappers)}
    breakable = {"BreakableCUDAGraphWrapper": SimpleNamespace(_all_instances=state.breakable)}
    for name, content in {
        "torch": {"__version__": "2.11.0+cu130"},
        "vllm": {"__version__": "0.24.0", "envs": state.envs},
        "vllm.compilation": {},
        "vllm.compilation.counter": {"compilation_counter": state.counter},
        "vllm.compilation.cuda_graph": cuda_graph,
        "vllm.compilation.breakable_cudagraph": breakable,
    }.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return state


def config(**changes: object) -> SimpleNamespace:
    """A VllmConfig."""
    made = SimpleNamespace(
        model_config=SimpleNamespace(runner_type="generate", enforce_eager=False),
        parallel_config=SimpleNamespace(data_parallel_index=0),
        scheduler_config=SimpleNamespace(max_num_seqs=8, max_num_batched_tokens=64),
        device_config=SimpleNamespace(device_type="cuda"),
        compilation_config=SimpleNamespace(
            mode=SimpleNamespace(name="VLLM_COMPILE"),
            backend="inductor",
            cudagraph_mode=Mode.FULL_AND_PIECEWISE,
            compilation_time=20.5,
            encoder_compilation_time=0.0,
        ),
    )
    for path, value in changes.items():
        owner, _, name = path.partition("__")
        setattr(getattr(made, owner), name, value)
    return made


class V1Runner:
    """Decides twice in a step, as with data parallel ranks; the second one counts."""

    def __init__(self, state: SimpleNamespace, mode: Mode, pieces: tuple[int, ...]) -> None:
        self._state, self._pieces = state, pieces
        self.cudagraph_dispatcher = SimpleNamespace(cudagraph_mode=mode)
        self.uniform_decode_query_len = 1
        self.model_memory_usage = 100
        self.next = Mode.NONE

    def capture_model(self) -> int:
        for mode, sizes in ((Mode.FULL, SIZES), (Mode.PIECEWISE, self._pieces)):
            made = Wrapper(mode, {Size(each): SimpleNamespace(cudagraph=1) for each in sizes})
            made.concrete_cudagraph_entries[Size(999)] = SimpleNamespace(cudagraph=None)
            self._state.wrappers.add(made)
        self._state.counter.num_cudagraph_captured = 68
        return 2**30

    def _determine_batch_execution_and_padding(self, mode: Mode) -> tuple[Mode, str]:
        return mode, "a descriptor"

    def execute_model(self, _step: object) -> str:
        self._determine_batch_execution_and_padding(Mode.FULL)
        self._determine_batch_execution_and_padding(self.next)
        return "output"


class Manager:
    """A ModelCudaGraphManager."""

    def __init__(self, mode: Mode) -> None:
        self.cudagraph_mode = mode
        self.graphs: dict[Size, object] = {}

    def run_fullgraph(self, _size: object) -> str:
        return "output"

    def run_pw_graph(self, _model: object, _inputs: object) -> str:
        return "output"


class V2Runner:
    """Decides, and then replays or doesn't."""

    def __init__(self, state: SimpleNamespace, mode: Mode) -> None:
        self._state = state
        self.cudagraph_manager: Manager | None = Manager(mode)
        self.decode_query_len = 1
        self.model_memory_usage = 100
        self.next = Mode.NONE

    def capture_model(self) -> int:
        assert self.cudagraph_manager is not None
        self.cudagraph_manager.graphs = {Size(each, each): object() for each in SIZES}
        entries = {Size(each): SimpleNamespace(cudagraph=1) for each in SIZES}
        self._state.wrappers.add(Wrapper(Mode.PIECEWISE, entries))
        return 2**30

    def execute_model(self, _step: object) -> str:
        if self.cudagraph_manager is not None and self.next == Mode.FULL:
            return self.cudagraph_manager.run_fullgraph(None)
        if self.cudagraph_manager is not None and self.next == Mode.PIECEWISE:
            return self.cudagraph_manager.run_pw_graph(None, None)
        return "output"


class Worker:
    """vLLM's, with what 0.24 leaves of its memory profile."""

    def __init__(self, runner: V1Runner | V2Runner, config: SimpleNamespace) -> None:
        self.model_runner, self.vllm_config = runner, config
        self.use_v2_model_runner = isinstance(runner, V2Runner)
        self.rank = 0
        self.captures = not config.model_config.enforce_eager
        self.init_snapshot = SimpleNamespace(total_memory=1000, free_memory=990)
        self.requested_memory = 900
        self.peak_activation_memory = 50
        self.non_torch_memory = 30
        self.cudagraph_memory_estimate = 10
        self.available_kv_cache_memory_bytes = 700

    def compile_or_warm_up_model(self) -> str:
        if self.captures:
            self.model_runner.capture_model()
        self.execute_model("a warm-up's step")
        return "times"

    def execute_model(self, step: object) -> str:
        return self.model_runner.execute_model(step)


class Wrapped:
    """A WorkerWrapperBase: what executors call."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def init_device(self) -> None:
        return None

    def __getattr__(self, name: str) -> object:
        return getattr(self.worker, name)

    def execute_model(self, step: object) -> str:
        return self.worker.execute_model(step)


def workers() -> types.ModuleType:
    """A new vllm.v1.worker.worker_base, whose class nobody changed yet."""
    module = types.ModuleType("vllm.v1.worker.worker_base")
    vars(module)["WorkerWrapperBase"] = type("WorkerWrapperBase", (Wrapped,), {})
    return module
