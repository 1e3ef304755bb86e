"""What is proven, as data: the settings of each start, and what has to come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# ready: it serves, some load is given. kv: up to vLLM's own KV-cache line. refused: the launcher
# ends with a line. worker: vLLM without the launcher, refused by the plugin in its worker.
# nothing_fits: it must not start.
Kind = Literal["ready", "kv", "refused", "worker", "nothing_fits"]
EAGER = "--load-format dummy --enforce-eager"
DUMMY = "--load-format dummy"


@dataclass(frozen=True, kw_only=True)
class Case:
    """`env`: settings beside MODEL. `usual_s`: how long it took on an H200, about. `streams`: load
    once it is ready. `largest`: MAX_MODEL_LEN is what fit says at most. `within`: how far the KV
    prediction may be off. `words`: in the last line. `cold`: with empty compile caches."""

    name: str
    kind: Kind
    shape: str = "llama-8b"
    env: Mapping[str, str] = field(default_factory=dict)
    usual_s: int = 45
    streams: tuple[int, ...] = ()
    largest: bool = False
    within: float = 0.05
    words: str = ""
    cold: bool = False
    gpus: int = 1


def _kv(name: str, **env: str) -> Case:
    given = {"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": EAGER, "REQUIRE_CUDA_GRAPHS": "false"}
    return Case(name=f"kv-{name}", kind="kv", env=given | env)


def _shape(shape: str) -> Case:
    given = {"VLLM_EXTRA_ARGS": EAGER, "REQUIRE_CUDA_GRAPHS": "false"}
    return Case(name=f"shape-{shape}", kind="kv", shape=shape, env=given, largest=True)


def _refused(name: str, words: str, **env: str) -> Case:
    given = {"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": DUMMY} | env
    return Case(name=f"refused-{name}", kind="refused", env=given, words=words, usual_s=4)


def _worker(name: str, arguments: str, words: str) -> Case:
    given = {"VLLM_EXTRA_ARGS": f"{DUMMY} --max-model-len 4096 {arguments}"}
    return Case(name=f"worker-{name}", kind="worker", env=given, words=words, usual_s=60)


USUAL = {"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": DUMMY, "API_SERVER_COUNT": "1"}
TWO = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}

CASES: tuple[Case, ...] = (
    Case(name="in-force", kind="ready", env=USUAL, usual_s=215, streams=(1, 64), within=0.03,
         cold=True),
    Case(name="warm", kind="ready", env=USUAL, usual_s=70, within=0.03),
    _worker("eager", "--enforce-eager", "CUDA graphs"),
    _worker("no-graphs", '-cc.cudagraph_mode=NONE', "CUDA graphs"),
    _refused("enforce-eager", "enforce-eager", VLLM_EXTRA_ARGS=EAGER),
    _refused("graph-mode-none", "cudagraph_mode", COMPILATION_CONFIG='{"cudagraph_mode":"NONE"}'),
    _refused("mode-0", "mode", COMPILATION_CONFIG='{"mode":0,"cudagraph_mode":"PIECEWISE"}'),
    _refused("no-sizes", "cudagraph_capture_sizes",
             COMPILATION_CONFIG='{"cudagraph_capture_sizes":[]}'),
    _refused("dynamo-off", "TORCHDYNAMO_DISABLE", TORCHDYNAMO_DISABLE="1"),
    _refused("compile-off", "TORCH_COMPILE_DISABLE", TORCH_COMPILE_DISABLE="1"),
    _refused("launch-blocking", "CUDA_LAUNCH_BLOCKING", CUDA_LAUNCH_BLOCKING="1"),
    _refused("level-0", "-O0", VLLM_EXTRA_ARGS=f"{DUMMY} -O0"),
    _refused("two-ranks-one-gpu", "TENSOR_PARALLEL_SIZE", TENSOR_PARALLEL_SIZE="64"),
    _kv("half", GPU_MEMORY_UTILIZATION="0.5"),
    _kv("seven-tenths", GPU_MEMORY_UTILIZATION="0.7"),
    _kv("long", MAX_MODEL_LEN="8192"),
    _kv("fp8", KV_CACHE_DTYPE="fp8"),
    _kv("few-sequences", MAX_NUM_SEQS="64"),
    _kv("large-steps", MAX_NUM_BATCHED_TOKENS="16384"),
    *(_shape(shape) for shape in (
        "deepseek-v2-lite", "gemma2-9b", "gemma3-1b-window", "mistral-7b-window", "qwen3-30b-a3b",
        "mixtral-8x7b", "llama-70b-fp8", "qwen2.5-7b-awq", "phi3-mini-many-heads",
        "llama-one-kv-head", "qwen3-0.6b-tied-big-vocabulary", "qwen2.5-7b", "llama-8b-long",
    )),
    Case(name="llama-70b-does-not-fit", kind="nothing_fits", shape="llama-70b", usual_s=60,
         env={"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": DUMMY}),
    Case(name="one-api-server", kind="ready", env=USUAL, streams=(256,), usual_s=90),
    Case(name="api-servers-by-cores", kind="ready", env=USUAL | {"API_SERVER_COUNT": "auto"},
         streams=(256,), usual_s=90),
    Case(name="debug", kind="ready", env=USUAL | {"ENGINE_DEBUG": "1"}, streams=(1,), usual_s=60),
    Case(name="tp2", kind="ready", env=USUAL | TWO | {"TENSOR_PARALLEL_SIZE": "2"}, gpus=2,
         usual_s=240, streams=(1, 64, 256), within=0.03, cold=True),
    Case(name="tp2-70b", kind="ready", shape="llama-70b", gpus=2, usual_s=280, streams=(1, 64),
         env=USUAL | TWO | {"TENSOR_PARALLEL_SIZE": "2"}),
)  # fmt: skip


def chosen(names: str, gpus: int) -> list[Case]:
    """Those named (a comma between them; a beginning stands for all that have it), or all that so
    many GPUs allow. Raises ValueError for a name that none has."""
    if not names:
        return [case for case in CASES if case.gpus <= gpus]
    picked = []
    for name in names.split(","):
        found = [case for case in CASES if case.name.startswith(name)]
        if not found:
            known = ", ".join(case.name for case in CASES)
            raise ValueError(f"found no case {name!r}; wanted one of {known}")
        picked += found
    return picked


def within(cases: list[Case], budget_s: float) -> tuple[list[Case], list[Case]]:
    """Those that a budget allows, in order, and those that it does not."""
    taken: list[Case] = []
    left: list[Case] = []
    for case in cases:
        spent = sum(one.usual_s for one in taken)
        (taken if spent + case.usual_s <= budget_s else left).append(case)
    return taken, left
