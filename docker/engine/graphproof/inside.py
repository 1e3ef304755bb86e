"""A worker of vLLM, as its report. Imports vLLM, but only when called, inside a worker.

Each name of vLLM's stands in tests/data/vllm_hooks for the versions that were looked at: 0.24,
0.32 and 0.33, whose two model runners keep the same things in different places.
"""

from dataclasses import dataclass

from graphproof.look import Look
from graphproof.report import WorkerReport

# Our name: where 0.24, and where later versions have it. The worker of a CPU has none of them.
MEMORY = {
    "total": "init_snapshot.total_memory",
    "free_at_start": "init_snapshot.free_memory",
    "requested": "requested_memory",
    "weights": "model_runner.model_memory_usage",
    "peak_activation": "peak_activation_memory",
    "non_torch": "non_torch_memory",
    "graphs_estimate": "cudagraph_memory_estimate",
    "available_kv": "available_kv_cache_memory_bytes",
}
CONSUMED = "total_consumed"  # later than 0.24: weights and what is not torch's, in one


@dataclass
class Capture:
    """What one call of capture_model took; None where there was none."""

    seconds: float | None = None
    bytes: int | None = None


def report(worker: object, capture: Capture, notes: tuple[str, ...]) -> WorkerReport:
    """worker: vLLM's, after its warm-up. Whatever of it isn't as expected is in `error`."""
    look = Look(worker)
    v2 = look.get("use_v2_model_runner", bool, False)
    full, pieces = _sizes(look, v2=v2)
    config, compilation = "vllm_config", "vllm_config.compilation_config"
    runner_type = look.get(f"{config}.model_config.runner_type", str, "generate")
    device = look.get(f"{config}.device_config.device_type", str, "cuda")
    query_len = "decode_query_len" if v2 else "uniform_decode_query_len"
    vllm, torch, graphs = _versions(look)
    return WorkerReport(
        dp_rank=look.get(f"{config}.parallel_config.data_parallel_index", int, 0),
        rank=look.get("rank", int, 0),
        vllm=vllm,
        torch=torch,
        runner="v2" if v2 else "v1",
        device="cpu" if device == "cpu" else "cuda",
        kind="pooling" if runner_type == "pooling" else "generate",
        mode=_mode(look, v2=v2),
        compile_mode=look.maybe(f"{compilation}.mode.name", str),
        backend=look.maybe(f"{compilation}.backend", str),
        full_sizes=full,
        piecewise_sizes=pieces,
        graphs=graphs,
        capture_seconds=None if capture.seconds is None else round(capture.seconds, 3),
        capture_bytes=capture.bytes,
        compile_seconds=_compile_seconds(look, compilation),
        decode_query_len=look.get(f"model_runner.{query_len}", int, 1),
        max_num_seqs=look.get(f"{config}.scheduler_config.max_num_seqs", int, 0) or None,
        max_num_batched_tokens=look.get(f"{config}.scheduler_config.max_num_batched_tokens", int, 0)
        or None,
        enforce_eager=look.get(f"{config}.model_config.enforce_eager", bool, False),
        notes=notes,
        memory=_memory(look),
        error="; ".join(look.problems) or None,
    )


def unreadable(worker: object, notes: tuple[str, ...], error: str) -> WorkerReport:
    """For a worker whose report could not be made."""
    look = Look(worker)
    return WorkerReport(
        dp_rank=look.maybe("vllm_config.parallel_config.data_parallel_index", int) or 0,
        rank=look.maybe("rank", int) or 0,
        vllm="unknown",
        torch="unknown",
        runner="v2" if look.maybe("use_v2_model_runner", bool) else "v1",
        device="cpu"
        if look.maybe("vllm_config.device_config.device_type", str) == "cpu"
        else "cuda",
        kind="generate",
        notes=notes,
        error=error,
    )


def _versions(look: Look) -> tuple[str, str, int]:
    """vLLM's and torch's versions, and the number of captures that vLLM counted."""
    import torch
    import vllm
    from vllm.compilation.counter import compilation_counter

    captured = Look(compilation_counter)
    number = captured.get("num_cudagraph_captured", int, 0)
    look.problems += captured.problems
    return str(vllm.__version__), str(torch.__version__), number


def _mode(look: Look, *, v2: bool) -> str | None:
    """The resolved mode. V2 has no manager where there is nothing to manage."""
    if not v2:
        return look.get("model_runner.cudagraph_dispatcher.cudagraph_mode.name", str, "") or None
    if look.maybe("model_runner.cudagraph_manager", object) is None:
        return look.get("vllm_config.compilation_config.cudagraph_mode.name", str, "") or None
    return look.get("model_runner.cudagraph_manager.cudagraph_mode.name", str, "") or None


def _sizes(look: Look, *, v2: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Token sizes that have a FULL graph, and those that have PIECEWISE ones."""
    from vllm.compilation.breakable_cudagraph import BreakableCUDAGraphWrapper
    from vllm.compilation.cuda_graph import CUDAGraphWrapper

    found: dict[str, set[int]] = {"FULL": set(), "PIECEWISE": set()}
    for wrapper in CUDAGraphWrapper._all_instances:
        entries = wrapper.concrete_cudagraph_entries.items()
        found[wrapper.runtime_mode.name] |= {
            size.num_tokens for size, entry in entries if entry.cudagraph is not None
        }
    for wrapper in BreakableCUDAGraphWrapper._all_instances:
        for entry in wrapper.entries.values():
            if entry.capture is not None:
                size = entry.batch_descriptor
                # Pieces fit any number of requests, a whole graph has one.
                mode = "PIECEWISE" if size.num_reqs is None else "FULL"
                found[mode].add(size.num_tokens)
    if v2 and look.maybe("model_runner.cudagraph_manager", object) is not None:
        graphs = look.get("model_runner.cudagraph_manager.graphs", dict, {})
        found["FULL"] |= {size.num_tokens for size in graphs}
    return tuple(sorted(found["FULL"])), tuple(sorted(found["PIECEWISE"]))


def _compile_seconds(look: Look, compilation: str) -> float | None:
    """0 in vLLM where nothing was compiled."""
    model = look.get(f"{compilation}.compilation_time", float, 0.0)
    encoder = look.get(f"{compilation}.encoder_compilation_time", float, 0.0)
    return round(model + encoder, 3) or None


def _memory(look: Look) -> dict[str, int]:
    found = {name: look.maybe(path, object) for name, path in MEMORY.items()}
    numbers = {name: int(value) for name, value in found.items() if isinstance(value, int | float)}
    consumed = look.maybe(CONSUMED, int)
    if consumed is None:
        return numbers
    if _estimate_counts() and "peak_activation" in numbers:
        # There the peak has the estimate of the graphs in it.
        numbers["peak_activation"] -= numbers.get("graphs_estimate", 0)
    return numbers | {"non_torch": consumed - numbers.get("weights", 0)}


def _estimate_counts() -> bool:
    from vllm import envs

    return Look(envs).maybe("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", bool) is not False
