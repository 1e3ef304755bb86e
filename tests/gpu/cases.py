"""What is proven, as data: the settings of each start, and what has to come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# ready: it serves, some load is given. kv: up to vLLM's own KV-cache line. another_key: until it
# compiles. refused: the launcher ends with a line. worker: vLLM without the launcher, refused by
# the plugin in its worker. nothing_fits: fit says no, and it does not start.
Kind = Literal["ready", "kv", "another_key", "refused", "worker", "nothing_fits"]
EAGER = "--load-format dummy --enforce-eager"
DUMMY = "--load-format dummy"
WORK = "{work}"  # in a setting: the folder of the run, where FILES are
FILES = {"eager.yaml": "enforce-eager: true\n"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """`env`: settings beside MODEL. `usual_s`: how long it takes on an H200, about. `streams`: load
    once it is ready. `largest`: MAX_MODEL_LEN is what fit says at most. `within`: how far the KV
    prediction may be off; None: it is shown alone. `words`: in the last line. `cold`: with empty
    compile caches. `cache`: which start that has to be. `on_cpu`: it tells something there, too."""

    name: str
    kind: Kind
    shape: str = "llama-8b"
    env: Mapping[str, str] = field(default_factory=dict)
    usual_s: int = 70
    streams: tuple[int, ...] = ()
    largest: bool = False
    within: float | None = 0.05
    words: str = ""
    cold: bool = False
    cache: Literal["cold", "warm"] | None = None
    gpus: int = 1
    on_cpu: bool = False


def _kv(name: str, *, on_cpu: bool = False, **env: str) -> Case:
    given = {"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": EAGER, "REQUIRE_CUDA_GRAPHS": "false"}
    return Case(name=f"kv-{name}", kind="kv", env=given | env, on_cpu=on_cpu)


def _shape(shape: str) -> Case:
    """Whole graphs without compiling: all the memory of a start, in a part of its time."""
    given = {
        "VLLM_EXTRA_ARGS": DUMMY,
        "COMPILATION_CONFIG": '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}',
        "REQUIRE_CUDA_GRAPHS": "false",
        "API_SERVER_COUNT": "1",
    }
    return Case(
        name=f"shape-{shape}", kind="ready", shape=shape, env=given, largest=True, within=None,
        streams=(8,), usual_s=190 if shape == "gpt-oss-20b" else 115,
    )  # fmt: skip


def _refused(name: str, words: str, *, on_cpu: bool = True, **env: str) -> Case:
    given = {"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": DUMMY} | env
    return Case(
        name=f"refused-{name}", kind="refused", env=given, words=words, usual_s=4, on_cpu=on_cpu
    )


def _worker(name: str, arguments: str, words: str, usual_s: int) -> Case:
    given = {"VLLM_EXTRA_ARGS": f"{DUMMY} --max-model-len 4096 {arguments}"}
    return Case(name=f"worker-{name}", kind="worker", env=given, words=words, usual_s=usual_s)


USUAL = {"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": DUMMY, "API_SERVER_COUNT": "1"}
# NVLink's multicast is not everywhere two GPUs of a host are lent.
TWO = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TENSOR_PARALLEL_SIZE": "2",
}

CASES: tuple[Case, ...] = (
    Case(name="in-force", kind="ready", env=USUAL, usual_s=195, streams=(1, 64), within=0.03,
         cold=True, cache="cold", on_cpu=True),
    # Also the one API server that auto is held against, so that one start does for both.
    Case(name="warm", kind="ready", env=USUAL, usual_s=80, streams=(256, 256), within=0.03,
         cache="warm", on_cpu=True),
    _worker("eager", "--enforce-eager", "take --enforce-eager out", usual_s=60),
    # vLLM says so in a line of INFO alone.
    _worker("no-pieces", "-cc.mode=0 -cc.cudagraph_mode=PIECEWISE", "compilation mode", usual_s=60),
    _refused("enforce-eager", "enforce-eager", VLLM_EXTRA_ARGS=EAGER),
    _refused("shortened", "--enf", VLLM_EXTRA_ARGS=f"{DUMMY} --enf"),
    _refused("config-file", "eager.yaml", VLLM_EXTRA_ARGS=f"{DUMMY} --config {WORK}/eager.yaml"),
    _refused("graph-mode-none", "cudagraph_mode", COMPILATION_CONFIG='{"cudagraph_mode":"NONE"}'),
    _refused("mode-0", "mode", COMPILATION_CONFIG='{"mode":0,"cudagraph_mode":"PIECEWISE"}'),
    _refused("no-sizes", "cudagraph_capture_sizes",
             COMPILATION_CONFIG='{"cudagraph_capture_sizes":[]}'),
    _refused("dynamo-off", "TORCHDYNAMO_DISABLE", TORCHDYNAMO_DISABLE="1"),
    _refused("compile-off", "TORCH_COMPILE_DISABLE", TORCH_COMPILE_DISABLE="1"),
    _refused("launch-blocking", "CUDA_LAUNCH_BLOCKING", on_cpu=False, CUDA_LAUNCH_BLOCKING="1"),
    _refused("level-0", "-O0", VLLM_EXTRA_ARGS=f"{DUMMY} -O0"),
    _refused("more-ranks-than-gpus", "TENSOR_PARALLEL_SIZE", on_cpu=False,
             TENSOR_PARALLEL_SIZE="64"),
    _kv("half", GPU_MEMORY_UTILIZATION="0.5"),
    _kv("seven-tenths", GPU_MEMORY_UTILIZATION="0.7"),
    _kv("long", on_cpu=True, MAX_MODEL_LEN="8192"),
    _kv("fp8", KV_CACHE_DTYPE="fp8"),
    _kv("few-sequences", MAX_NUM_SEQS="64"),
    _kv("large-steps", MAX_NUM_BATCHED_TOKENS="16384"),
    *(_shape(shape) for shape in (
        "deepseek-v2-lite", "gemma2-9b", "gemma3-1b-window", "gpt-oss-20b", "qwen3-30b-a3b",
        "llama-70b-fp8", "qwen2.5-7b-awq", "mixtral-8x7b", "mistral-7b-window",
        "phi3-mini-many-heads", "llama-one-kv-head", "qwen3-0.6b-tied-big-vocabulary",
        "qwen2.5-7b", "llama-8b-long",
    )),
    Case(name="llama-70b-does-not-fit", kind="nothing_fits", shape="llama-70b", usual_s=60,
         env={"MAX_MODEL_LEN": "4096", "VLLM_EXTRA_ARGS": DUMMY}),
    Case(name="api-servers-by-cores", kind="ready", env=USUAL | {"API_SERVER_COUNT": "auto"},
         streams=(256, 256), usual_s=115),
    Case(name="another-key", kind="another_key", env=USUAL | {"VLLM_IMAGE_TAG": "another"},
         cache="cold", usual_s=110),
    Case(name="debug", kind="ready", env=USUAL | {"ENGINE_DEBUG": "1"}, streams=(1,), usual_s=60,
         on_cpu=True),
    Case(name="tp2", kind="ready", env=USUAL | TWO, gpus=2, usual_s=240, streams=(1, 64, 256),
         within=0.03, cold=True, cache="cold"),
    Case(name="tp2-70b", kind="ready", shape="llama-70b", gpus=2, usual_s=280, streams=(1, 64),
         env=USUAL | TWO),
)  # fmt: skip


def chosen(names: str, gpus: int) -> list[Case]:
    """Those named (a comma between them; a beginning stands for all that have it), or all that so
    many GPUs allow. Raises ValueError for a name that none has, or that wants more GPUs."""
    if not names:
        return [case for case in CASES if case.gpus <= gpus]
    picked: list[Case] = []
    for name in names.split(","):
        found = [case for case in CASES if case.name.startswith(name)]
        if not found:
            known = ", ".join(case.name for case in CASES)
            raise ValueError(f"found no case {name!r}; wanted one of {known}")
        picked += [case for case in found if case not in picked]
    for case in picked:
        if case.gpus > gpus:
            raise ValueError(f"found {gpus} GPU; wanted {case.gpus} for {case.name}")
    return picked
