"""What of a version of vLLM the plugin graphproof relies on, read from its source, nothing run.

    python tests/tools/vllm_hooks.py vllm-0.33.0-….whl > tests/data/vllm_hooks/0.33.0.json

Takes a wheel or a `vllm` folder. `members`: of each class that is looked into, the wanted names
that it has (methods, fields, what its methods assign to self). `calls`: of the wanted calls, those
that stand in the function named. `returns`: the type that a function says it returns. What a
version lacks is missing there.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

WORKER = "v1/worker/gpu_worker.py"
V1 = "v1/worker/gpu_model_runner.py"
V2 = "v1/worker/gpu/model_runner.py"
UTILS = "v1/worker/gpu/cudagraph_utils.py"
OUTPUT = "v1/core/sched/output.py"
# file:class → names. "" for the class: names of the module.
MEMBERS = {
    "plugins/__init__.py:": "load_general_plugins load_plugins_by_group",
    "envs.py:": "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    "v1/worker/worker_base.py:WorkerWrapperBase": "init_device init_worker execute_model worker",
    "v1/worker/worker_base.py:WorkerBase": "rank vllm_config compile_or_warm_up_model",
    f"{WORKER}:Worker": "use_v2_model_runner model_runner init_snapshot requested_memory"
    " peak_activation_memory non_torch_memory total_consumed cudagraph_memory_estimate"
    " available_kv_cache_memory_bytes compile_or_warm_up_model execute_model",
    "v1/worker/cpu_worker.py:CPUWorker": "compile_or_warm_up_model model_runner",
    "utils/mem_utils.py:MemorySnapshot": "total_memory free_memory",
    f"{V1}:GPUModelRunner": "capture_model execute_model cudagraph_dispatcher model_memory_usage"
    " uniform_decode_query_len _determine_batch_execution_and_padding",
    "v1/cudagraph_dispatcher.py:CudagraphDispatcher": "cudagraph_mode",
    f"{V2}:GPUModelRunner": "capture_model execute_model cudagraph_manager model_memory_usage"
    " decode_query_len",
    f"{UTILS}:CudaGraphManager": "cudagraph_mode graphs run_fullgraph run_pw_graph",
    f"{UTILS}:BatchExecutionDescriptor": "num_tokens",
    "compilation/cuda_graph.py:CUDAGraphWrapper": "_all_instances runtime_mode"
    " concrete_cudagraph_entries",
    "compilation/cuda_graph.py:CUDAGraphEntry": "cudagraph",
    "compilation/breakable_cudagraph.py:BreakableCUDAGraphWrapper": "_all_instances entries",
    "compilation/breakable_cudagraph.py:_BreakableEntry": "capture batch_descriptor",
    "compilation/counter.py:CompilationCounter": "num_cudagraph_captured",
    "compilation/counter.py:": "compilation_counter",
    "forward_context.py:BatchDescriptor": "num_tokens num_reqs",
    "config/vllm.py:VllmConfig": "compilation_config device_config model_config parallel_config"
    " scheduler_config use_v2_model_runner",
    "config/compilation.py:CompilationConfig": "mode backend cudagraph_mode compilation_time"
    " encoder_compilation_time",
    "config/compilation.py:CUDAGraphMode": "NONE PIECEWISE FULL",
    "config/device.py:DeviceConfig": "device_type",
    "config/model.py:ModelConfig": "runner_type enforce_eager",
    "config/parallel.py:ParallelConfig": "data_parallel_index",
    "config/scheduler.py:SchedulerConfig": "max_num_seqs max_num_batched_tokens",
    f"{OUTPUT}:SchedulerOutput": "scheduled_new_reqs scheduled_cached_reqs num_scheduled_tokens"
    " total_num_scheduled_tokens",
    f"{OUTPUT}:CachedRequestData": "resumed_req_ids num_output_tokens",
    "v1/metrics/loggers.py:StatLoggerBase": "__init__ record log_engine_initialized",
    "v1/metrics/loggers.py:": "load_stat_logger_plugin_factories",
}
# file:function → names that are called in it.
CALLS = {
    "v1/worker/worker_base.py:init_worker": "load_general_plugins",
    "v1/worker/worker_base.py:execute_model": "execute_model",
    "v1/executor/uniproc_executor.py:_init_executor": "init_device",
    "v1/executor/multiproc_executor.py:__init__": "init_device",
    # 0.33 has its body in the second one.
    f"{WORKER}:compile_or_warm_up_model": "capture_model",
    f"{WORKER}:_compile_or_warm_up_model": "capture_model",
    f"{WORKER}:execute_model": "execute_model",
    f"{V1}:execute_model": "_determine_batch_execution_and_padding",
    f"{V2}:execute_model": "run_fullgraph run_pw_graph",
    "engine/arg_utils.py:__post_init__": "load_general_plugins",
    "v1/engine/async_llm.py:__init__": "load_stat_logger_plugin_factories log_engine_initialized",
}
RETURNS = (f"{V1}:_determine_batch_execution_and_padding",)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def opener(place: Path) -> Callable[[str], str | None]:
    """A function from a path below vllm/ to its text; None where there is no such file."""
    if place.suffix == ".whl":
        wheel = zipfile.ZipFile(place)
        names = set(wheel.namelist())
        return lambda path: wheel.read(f"vllm/{path}").decode() if f"vllm/{path}" in names else None
    return lambda path: (place / path).read_text() if (place / path).is_file() else None


def targets(node: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AnnAssign):
        yield node.target


def names_of(body: list[ast.stmt]) -> Iterator[str]:
    """What a class or a module defines, and what methods assign to self."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        yield from (each.id for each in targets(node) if isinstance(each, ast.Name))
        if isinstance(node, ast.If):  # `if TYPE_CHECKING:`
            yield from names_of(node.body)
        if isinstance(node, Function):
            yield from assigned_to_self(node)


def assigned_to_self(function: Function) -> Iterator[str]:
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
    for target in (each for node in statements for each in targets(node)):
        if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self":
            yield target.attr


def body_of(tree: ast.Module, name: str) -> list[ast.stmt]:
    """A class' body, or with "" the module's."""
    if not name:
        return tree.body
    found = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    return found[0].body if found else []


def functions(tree: ast.Module, name: str) -> list[Function]:
    return [n for n in ast.walk(tree) if isinstance(n, Function) and n.name == name]


def called(function: Function) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {
        func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls
    }


def read(place: Path) -> dict[str, dict[str, object]]:
    text = opener(place)

    def tree(path: str) -> ast.Module:
        return ast.parse(text(path) or "")

    members: dict[str, object] = {}
    for where, wanted in MEMBERS.items():
        path, _, name = where.partition(":")
        members[where] = sorted(set(wanted.split()) & set(names_of(body_of(tree(path), name))))
    calls: dict[str, object] = {}
    for where, wanted in CALLS.items():
        path, _, name = where.partition(":")
        found = {each for function in functions(tree(path), name) for each in called(function)}
        calls[where] = sorted(set(wanted.split()) & found)
    returns: dict[str, object] = {}
    for where in RETURNS:
        path, _, name = where.partition(":")
        said = [function.returns for function in functions(tree(path), name)]
        returns[where] = ast.unparse(said[0]) if said and said[0] else ""
    return {"members": members, "calls": calls, "returns": returns}


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1])), indent=1))  # noqa: T201 - the command's output
