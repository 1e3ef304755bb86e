"""The verdict, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphproof import verdict
from graphproof.counts import Counts
from graphproof.report import WorkerReport

SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
DEFAULT = WorkerReport(
    dp_rank=0, rank=0, vllm="0.33.0", torch="2.14.0+cu130", runner="v2", device="cuda",
    kind="generate", mode="FULL_AND_PIECEWISE", compile_mode="VLLM_COMPILE", backend="inductor",
    full_sizes=SIZES, piecewise_sizes=SIZES, graphs=1700, capture_seconds=5.2,
    capture_bytes=1052266987, compile_seconds=20.7, decode_query_len=1, max_num_seqs=1024,
    max_num_batched_tokens=8192,
)  # fmt: skip
EAGER = replace(
    DEFAULT, mode="NONE", full_sizes=(), piecewise_sizes=(), graphs=0,
    capture_seconds=None, capture_bytes=None,
)  # fmt: skip
DECODE_ONLY = replace(DEFAULT, mode="FULL_DECODE_ONLY", piecewise_sizes=())
PIECEWISE = replace(DEFAULT, mode="PIECEWISE", full_sizes=())
RANK_1 = replace(DEFAULT, rank=1)
# As vLLM 0.33 writes them.
BY_MODE = (
    "Cudagraph mode FULL_AND_PIECEWISE is not compatible with compilation mode 0. Overriding to "
)
BY_BACKEND = (
    "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with MyBackend backend (support: "
    "AttentionCGSupport.NEVER); setting cudagraph_mode=PIECEWISE because attention is compiled "
    "piecewise"
)
BY_FA2 = (
    "CUDAGraphMode.FULL is not supported with FlashAttentionBackend backend (support: "
    "AttentionCGSupport.UNIFORM_BATCH); setting cudagraph_mode=FULL_AND_PIECEWISE"
)
POOLING = "Pooling models do not support full cudagraphs. Overriding cudagraph_mode to PIECEWISE."
WHISPER = (
    "Encoder-decoder models do not support FULL_AND_PIECEWISE. Overriding cudagraph_mode to "
    "FULL_DECODE_ONLY."
)
ENFORCED = (
    "Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup. This is "
    "equivalent to setting -cc.mode=none -cc.cudagraph_mode=none"
)
SKIPPED = (
    "Skipping CUDA graph capture. To turn on CUDA graph capture, ensure `cudagraph_mode` was not "
    "manually set to `NONE`"
)


def decoded(with_graph: int, without: int, largest: int = 0) -> Counts:
    counts = Counts(largest_eager_decode_tokens=largest)
    counts.steps["decode"].update(FULL=with_graph, NONE=without)
    return counts


CASES: dict[str, tuple[list[WorkerReport], str, str, str]] = {
    # name: reports, verdict, in its reason, in its fix
    "default": ([DEFAULT], "in force", "FULL_AND_PIECEWISE: 1700 graphs for steps of 1 to 512", ""),
    "two ranks": ([DEFAULT, RANK_1], "in force", "0.98 GiB each, 2 workers", ""),
    "FULL": ([replace(DEFAULT, mode="FULL", piecewise_sizes=())], "in force", "FULL: ", ""),
    "FULL made better": ([replace(DEFAULT, notes=(BY_FA2,))], "in force", "1 worker", ""),
    "asked for decode only": ([DECODE_ONLY], "in force", "FULL_DECODE_ONLY", ""),
    "asked for pieces": ([PIECEWISE], "in force", "PIECEWISE: ", ""),
    "encoder-decoder": ([replace(DECODE_ONLY, notes=(WHISPER,))], "in force", "FULL_DECODE", ""),
    "pooling with graphs": (
        [replace(PIECEWISE, kind="pooling", notes=(POOLING,))], "in force", "PIECEWISE", "",
    ),
    "few sequences": (
        [replace(DEFAULT, full_sizes=(1, 2, 4), piecewise_sizes=(1, 2, 4, 8), max_num_seqs=5)],
        "in force", "1 to 8 tokens", "",
    ),
    "vLLM's list ends below 1000 tokens a step": (
        [replace(DEFAULT, full_sizes=(1, 288), piecewise_sizes=(), mode="FULL_DECODE_ONLY",
                 max_num_batched_tokens=300)],
        "in force", "288", "",
    ),
    "pieces by the backend": (
        [replace(PIECEWISE, notes=(BY_BACKEND,))], "partly", "MyBackend", "--attention-backend",
    ),
    "decode only by compile mode": (
        [replace(DECODE_ONLY, notes=(BY_MODE + "FULL_DECODE_ONLY.",))],
        "partly", "no graph for steps with prompts", "COMPILATION_CONFIG",
    ),
    "model not compiled, decode graphs": (
        [replace(DEFAULT, piecewise_sizes=())], "partly", "no PIECEWISE graph", "--model-impl",
    ),
    "no decode graphs": (
        [replace(DEFAULT, full_sizes=())], "partly", "no FULL graph", "capture sizes",
    ),
    "ranks differ in sizes": (
        [DEFAULT, replace(RANK_1, full_sizes=SIZES[:-1])], "partly", "workers differ", "log",
    ),
    "one rank has none": (
        [DEFAULT, replace(EAGER, rank=1)], "partly", "worker 1 has NONE, 0 FULL", "log",
    ),
    "sizes end early": (
        [replace(DEFAULT, full_sizes=(1, 2, 4, 8), piecewise_sizes=(1, 2, 4, 8))],
        "partly", "graphs end at 8 tokens, decode batches may have 512", "MAX_NUM_SEQS to 8",
    ),
    "sizes end early for drafts": (
        [replace(DEFAULT, full_sizes=(4, 64), piecewise_sizes=(4, 64), decode_query_len=4,
                 max_num_seqs=100)],
        "partly", "decode batches may have 400", "MAX_NUM_SEQS to 16",
    ),
    "eager by flag": (
        [replace(EAGER, enforce_eager=True, compile_mode="NONE")],
        "eager", "enforce_eager", "--enforce-eager",
    ),
    "eager by flag, with its line": (
        [replace(EAGER, enforce_eager=True, notes=(ENFORCED,))], "eager", "Enforce eager set",
        "--enforce-eager",
    ),
    "eager by compile mode": (
        [replace(EAGER, compile_mode="NONE", notes=(BY_MODE + "NONE.", SKIPPED))],
        "eager", "not compatible with compilation mode", "TORCH_COMPILE_DISABLE",
    ),
    "eager by mode, with vLLM's line": (
        [replace(EAGER, notes=(SKIPPED,))], "eager", "Skipping", "NONE",
    ),
    "eager in silence": ([EAGER], "eager", "resolved cudagraph_mode to NONE", "-O0"),
    "eager though pieces were promised": (
        [replace(EAGER, mode="PIECEWISE")], "eager", "no part that vLLM compiles",
        "FULL_DECODE_ONLY",
    ),
    "eager though whole graphs were promised": (
        [replace(EAGER, mode="FULL_AND_PIECEWISE")], "eager", "no size was left", "capture sizes",
    ),
    "pooling without": ([replace(EAGER, kind="pooling")], "not applicable", "pooling", ""),
    "pooling, eager by flag": (
        [replace(EAGER, kind="pooling", enforce_eager=True)], "not applicable", "pooling", "",
    ),
    "on a CPU": ([replace(EAGER, device="cpu")], "not applicable", "CPU", ""),
    "a hook did not fit": (
        [replace(DEFAULT, vllm="0.99.0", error="no cudagraph_dispatcher")],
        "unknown", "vLLM 0.99.0 (worker 0: no cudagraph_dispatcher)", "versions.toml",
    ),
    "nobody reported": ([], "unknown", "no worker reported", "VLLM_PLUGINS"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_verdict(name: str) -> None:
    reports, word, reason, fix = CASES[name]
    judged = verdict.judge(reports, len(reports) or None, None, "cuda")
    assert judged.verdict == word
    assert reason in judged.reason
    assert fix in judged.fix
    assert bool(judged.fix) == (word in {"partly", "eager", "unknown"})


def test_a_missing_worker_is_no_proof() -> None:
    judged = verdict.judge([DEFAULT], 2, None, "cuda")
    assert (judged.verdict, judged.reason) == ("unknown", "1 of 2 workers reported")


def test_the_device_alone_decides_on_a_cpu() -> None:
    assert verdict.judge([], 1, None, "cpu").verdict == "not applicable"


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        (decoded(1000, 0), "in force"),
        (decoded(1000, 52), "in force"),
        (decoded(950, 50, largest=700), "partly"),
        (decoded(0, 99), "in force"),
        (decoded(0, 100), "partly"),
    ],
)
def test_the_share_without_graphs(counts: Counts, word: str) -> None:
    judged = verdict.judge([DEFAULT], 1, counts, "cuda")
    assert judged.verdict == word
    if counts.largest_eager_decode_tokens:
        assert "50 of 1000 decode steps (5%)" in judged.reason
        assert "with 700 tokens" in judged.reason
        assert "--max-cudagraph-capture-size 700" in judged.fix
    elif word == "partly":
        assert "--max-cudagraph-capture-size" not in judged.fix


def test_prompts_without_graphs_are_normal() -> None:
    counts = decoded(100, 0)
    counts.steps["prefill"]["NONE"] = 1000
    assert verdict.judge([DEFAULT], 1, counts, "cuda").verdict == "in force"
