"""What is put around vLLM's methods in a worker. Knows their names only; nothing is imported.

init_device of the class that all executors use is the one place where a class is changed. From
there on it is that one worker and its model runner: an attribute of the instance stands before the
method of its class, and is taken away again with `del`.
"""

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from graphproof import counts, inside, notes, report, verdict
from graphproof.inside import Capture
from graphproof.report import WorkerReport
from graphproof.steps import NONE, Steps

MARK = "graphproof"
LOG = logging.getLogger("vllm.graphproof")  # below vLLM's, so that its lines look alike
# What a vLLM of another shape makes of us.
MISFITS = (
    AttributeError, ImportError, IndexError, KeyError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
Method = Callable[..., Any]


def install(workers: ModuleType) -> None:
    """workers: vllm.v1.worker.worker_base. Does nothing the second time."""
    wrapper: Any = getattr(workers, "WorkerWrapperBase", None)
    original = getattr(wrapper, "init_device", None)
    if original is None:
        LOG.warning("graphproof: %s has no WorkerWrapperBase.init_device", workers.__name__)
    elif not hasattr(original, MARK):
        wrapper.init_device = _watched(original)


def _watched(original: Method) -> Method:
    @functools.wraps(original)
    def init_device(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        folder = os.environ.get("ENGINE_PROOF_DIR")
        worker = getattr(self, "worker", None)
        if folder and hasattr(worker, "compile_or_warm_up_model"):
            required = os.environ.get("ENGINE_REQUIRE_GRAPHS") == "1"
            Watch(worker, Path(folder), required=required).start()
        return result

    setattr(init_device, MARK, True)
    return init_device


class Watch:
    """One worker, from its device to its last step."""

    def __init__(self, worker: Any, folder: Path, *, required: bool) -> None:
        self._worker, self._folder, self._required = worker, folder, required
        self._numbers: memoryview | None = None
        self._around: list[tuple[object, str]] = []

    def start(self) -> None:
        warm_up = self._worker.compile_or_warm_up_model

        @functools.wraps(warm_up)
        def compile_or_warm_up_model(*args: Any, **kwargs: Any) -> Any:
            self._take_off()  # vLLM warms up again when it scales elastically
            capture = Capture()
            self._time_capture(capture)
            try:
                result = warm_up(*args, **kwargs)
            finally:
                self._take_off()
            self._warmed_up(capture)
            return result

        self._worker.compile_or_warm_up_model = compile_or_warm_up_model

    def _put(self, owner: object, name: str, method: Method) -> None:
        setattr(owner, name, method)
        self._around.append((owner, name))

    def _take_off(self) -> None:
        for owner, name in self._around:
            with contextlib.suppress(AttributeError):  # someone else took it away
                delattr(owner, name)
        self._around.clear()

    def _time_capture(self, capture: Capture) -> None:
        runner = getattr(self._worker, "model_runner", None)
        original = getattr(runner, "capture_model", None)
        if original is None:  # a CPU's
            return

        @functools.wraps(original)
        def capture_model(*args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            taken = original(*args, **kwargs)
            capture.seconds = time.monotonic() - start
            capture.bytes = taken if isinstance(taken, int) else None
            return taken

        self._put(runner, "capture_model", capture_model)

    def _warmed_up(self, capture: Capture) -> None:
        """Report and count from here on; raises RuntimeError where graphs are required and lost."""
        made = self._report(capture)
        try:
            self._count(made)
        except (*MISFITS, OSError) as error:
            self._give_up(made, f"steps are not counted: {_words(error)}")
        judged = verdict.judge([made], 1, None, made.device)
        if self._required and judged.verdict == "eager":
            raise RuntimeError(f"CUDA graphs: {judged.reason}; fix: {judged.fix}")

    def _report(self, capture: Capture) -> WorkerReport:
        said: tuple[str, ...] = ()
        try:
            said = notes.read_all(self._folder)
            made = inside.report(self._worker, capture, said)
        except (*MISFITS, OSError) as error:
            made = inside.unreadable(self._worker, said, _words(error))
        if made.error:
            LOG.warning("graphproof does not fit this vLLM: %s", made.error)
        self._write(made)
        return made

    def _write(self, made: WorkerReport) -> None:
        try:
            report.write(self._folder, made)
        except OSError as error:  # the launcher then has no report, and says so
            LOG.warning("graphproof: %s", error)

    def _give_up(self, made: WorkerReport, error: str) -> None:
        LOG.warning("graphproof: %s", error)
        self._take_off()
        self._write(made.with_error(error))

    def _count(self, made: WorkerReport) -> None:
        if self._numbers is None:
            path = counts.path_of(self._folder, made.dp_rank, made.rank)
            self._numbers = counts.create(path)
        full, pieces = bool(made.full_sizes), bool(made.piecewise_sizes)
        steps = Steps(self._numbers, made.decode_query_len, full=full, pieces=pieces)
        if made.runner == "v2":
            self._see_v2(steps)
        else:
            self._see_v1(steps, made)
        self._see_steps(steps, made)

    def _see_v1(self, steps: Steps, made: WorkerReport) -> None:
        """The runner's decision, after the data parallel ranks agreed on it."""
        runner = self._worker.model_runner
        original = runner._determine_batch_execution_and_padding

        @functools.wraps(original)
        def decide(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            try:
                steps.mode = steps.by_name[result[0].name]
            except MISFITS as error:
                self._give_up(made, f"a step's mode could not be read: {_words(error)}")
            return result

        self._put(runner, "_determine_batch_execution_and_padding", decide)

    def _see_v2(self, steps: Steps) -> None:
        """The two calls that replay graphs; a step with neither of them runs without."""
        manager = self._worker.model_runner.cudagraph_manager
        if manager is None:
            return
        for name, mode in (("run_fullgraph", "FULL"), ("run_pw_graph", "PIECEWISE")):
            self._put(manager, name, _seen(getattr(manager, name), steps, steps.by_name[mode]))

    def _see_steps(self, steps: Steps, made: WorkerReport) -> None:
        original = self._worker.execute_model

        @functools.wraps(original)
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            steps.mode = NONE
            output = original(scheduler_output, *args, **kwargs)
            # Afterwards, while the GPU is at work.
            try:
                steps.count(scheduler_output)
            except MISFITS as error:
                self._give_up(made, f"a step could not be counted: {_words(error)}")
            return output

        self._put(self._worker, "execute_model", execute_model)


def _seen(original: Method, steps: Steps, mode: int) -> Method:
    """original: what runs a step in that mode."""

    @functools.wraps(original)
    def replay(*args: Any, **kwargs: Any) -> Any:
        steps.mode = mode
        return original(*args, **kwargs)

    return replay


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
