"""What the launcher renders, read by the real vLLM's own argument parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from common.vllm_arguments import ask
from launcher.cudagraphs import graphs
from launcher.options import argv, configfile, flags
from launcher.options.settings import load

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

CASES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {"gpu_memory_utilization": 0.9, "port": 8000, "shutdown_timeout": 75,
          "disable_uvicorn_access_log": True, "served_model_name": ["acme/m", "default"],
          "model": "/models/m", "enforce_eager": False, "max_model_len": -1}),
    ({"ENGINE_DEVICE": "cpu"}, {"enforce_eager": True, "dtype": "bfloat16",
                                "kv_cache_memory_bytes": 2**30, "max_model_len": None}),
    ({"ENGINE_DEVICE": "cpu", "COMPILATION_CONFIG": "3"},
     {"enforce_eager": False, "mode": "VLLM_COMPILE"}),
    ({"ENGINE_DEVICE": "cpu", "VLLM_EXTRA_ARGS": "--kv_cache_memory_bytes=2G --dtype float32"},
     {"kv_cache_memory_bytes": 2 * 2**30, "dtype": "float32"}),
    ({"MAX_MODEL_LEN": "8k"}, {"max_model_len": 8000}),
    ({"MAX_MODEL_LEN": "8K"}, {"max_model_len": 8192}),
    ({"MAX_MODEL_LEN": "25.6k"}, {"max_model_len": 25_600}),
    ({"MAX_MODEL_LEN": "auto"}, {"max_model_len": -1}),
    ({"MAX_NUM_SEQS": "64", "MAX_NUM_BATCHED_TOKENS": "4K"},
     {"max_num_seqs": 64, "max_num_batched_tokens": 4096}),
    ({"KV_CACHE_DTYPE": "fp8", "QUANTIZATION": "awq"},
     {"kv_cache_dtype": "fp8", "quantization": "awq"}),
    ({"ENABLE_PREFIX_CACHING": "true"}, {"enable_prefix_caching": True}),
    ({"ENABLE_PREFIX_CACHING": "false"}, {"enable_prefix_caching": False}),
    ({"TOOL_CALL_PARSER": "hermes", "REASONING_PARSER": "qwen3"},
     {"tool_call_parser": "hermes", "enable_auto_tool_choice": True, "reasoning_parser": "qwen3"}),
    ({"API_SERVER_COUNT": "4", "TENSOR_PARALLEL_SIZE": "8"},
     {"api_server_count": 4, "tensor_parallel_size": 8}),
    ({"COMPILATION_CONFIG": '{"cudagraph_mode":"FULL_DECODE_ONLY"}'},
     {"cudagraph_mode": "FULL_DECODE_ONLY"}),
    ({"COMPILATION_CONFIG": "2", "REQUIRE_CUDA_GRAPHS": "false"}, {"mode": "DYNAMO_TRACE_ONCE"}),
    ({"SERVED_MODEL_NAME": "a,b", "ENGINE_DRAIN_S": "75"},
     {"served_model_name": ["a", "b", "default"], "shutdown_timeout": 90}),
    ({"VLLM_EXTRA_ARGS": "--seed 7 --chat-template '{{ a b }}'"},
     {"seed": 7, "chat_template": "{{ a b }}"}),
]  # fmt: skip


SPELLINGS = [
    (["-tp", "2"], "tensor_parallel_size", 2),
    (["--tensor_parallel_size=2"], "tensor_parallel_size", 2),
    (["--tensor-par", "2"], "tensor_parallel_size", 2),
    (["-qawq"], "quantization", "awq"),
    (["-cc.mode=0"], "mode", "NONE"),
    (["--compilation_config.mode", "0"], "mode", "NONE"),
    (["--no_enable_prefix_caching"], "enable_prefix_caching", False),
    (["--enforce-e"], "enforce_eager", True),
    (["--ho", "x"], "host", "x"),
]


# Words that leave no CUDA graph, and where vLLM puts them. `FILE:` is a file for --config.
NO_GRAPHS: list[tuple[list[str], str, object]] = [
    (["--enforce-eager"], "enforce_eager", True),
    (["--enforce_eager"], "enforce_eager", True),
    (["--enf"], "enforce_eager", True),
    (["--enforce-eager", "False"], "enforce_eager", True),
    (["-O0"], "optimization_level", 0),
    (["-O", "0"], "optimization_level", 0),
    (["-O=0"], "optimization_level", 0),
    (["-O00"], "optimization_level", 0),
    (["--optimization_level=0"], "optimization_level", 0),
    (["--opt", "+0"], "optimization_level", 0),
    (["--cudagraph-capture-sizes", "0"], "cudagraph_capture_sizes", [0]),
    (["--max_cudagraph=0"], "max_cudagraph_capture_size", 0),
    (["FILE:enforce-eager: yes"], "enforce_eager", True),
    (["FILE:enforce-e: true"], "enforce_eager", True),
    (["FILE:optimization-level: 0"], "optimization_level", 0),
    (["FILE:compilation-config: '{\"mode\": 0}'"], "mode", "NONE"),
    (["FILE:compilation-config: {mode: false}"], "mode", "NONE"),
    (["FILE:compilation-config: {mode: stock_torch_compile}"], "mode", "STOCK_TORCH_COMPILE"),
    (["FILE:compilation-config: {cudagraph_mode: 0}"], "cudagraph_mode", "NONE"),
    (["FILE:compilation_config.cudagraph_mode: none"], "cudagraph_mode", "NONE"),
    (
        ["FILE:compilation-config.cudagraph_mode: none", "--compilation-config", "{}"],
        "cudagraph_mode",
        "NONE",
    ),
    (["FILE:compilation-config: {cudagraph_capture_sizes: []}"], "config_sizes", []),
    (["FILE:compilation-config: {max_cudagraph_capture_size: '0'}"], "config_largest", 0),
]
# Words that only look like it: vLLM reads something else.
GRAPHS: list[tuple[list[str], str, object]] = [
    (["--enforce-eager", "--no-enforce-eager"], "enforce_eager", False),
    (["FILE:enforce-eager: true", "--no-enforce-eager"], "enforce_eager", False),
    (["-O0", "-O2"], "optimization_level", 2),
    (["FILE:compilation-config: {cudagraph_mode: none}", "--compilation-config", "{}"],
     "cudagraph_mode", None),
]  # fmt: skip


def written(words: list[str], folder: Path) -> list[str]:
    """`words` with each FILE: made a file and named with --config."""
    files = [word for word in words if word.startswith("FILE:")]
    if not files:
        return words
    path = folder / f"{abs(hash(files[0]))}.yaml"
    path.write_text(files[0].removeprefix("FILE:") + "\n")
    return ["--config", str(path), *[word for word in words if word not in files]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def answer(engine_python: str, files: Path) -> dict[str, Any]:
    """One start of vLLM's parser (its imports take ten seconds) for all of this file."""
    rendered = [argv.arguments(load(environ), "/models/m", "acme/m") for environ, _ in CASES]
    spelled = [words for words, _, _ in (*SPELLINGS, *NO_GRAPHS, *GRAPHS)]
    return ask(engine_python, [*rendered, *[written(words, files) for words in spelled]])


@pytest.mark.parametrize("here", range(len(CASES)))
def test_vllm_reads_what_was_meant(answer: dict[str, Any], here: int) -> None:
    result = answer["results"][here]
    assert "error" not in result
    wanted = CASES[here][1]
    assert {name: result[name] for name in wanted} == wanted


@pytest.mark.parametrize("here", range(len(SPELLINGS)))
def test_vllm_takes_the_spellings_that_are_refused(answer: dict[str, Any], here: int) -> None:
    """Each spelling does reach vLLM's setting, so refusing it is no pedantry."""
    words, field, value = SPELLINGS[here]
    assert answer["results"][len(CASES) + here][field] == value
    first = flags.read(tuple(words))[0]
    assert first.name


def ruled_out(words: list[str], folder: Path) -> tuple[graphs.Finding, ...]:
    """What the launcher finds in the same words; --compilation-config stands for its variable."""
    given = written(words, folder)
    config = {} if "--compilation-config" in given else None
    if config is not None:
        given = given[: given.index("--compilation-config")]
    return graphs.ruled_out(config, tuple(given), {}, configfile.read(tuple(given)))


@pytest.mark.parametrize("here", range(len(NO_GRAPHS) + len(GRAPHS)))
def test_the_launcher_reads_graph_settings_as_vllm_does(
    answer: dict[str, Any], files: Path, here: int
) -> None:
    words, field, value = (*NO_GRAPHS, *GRAPHS)[here]
    result = answer["results"][len(CASES) + len(SPELLINGS) + here]
    assert "error" not in result
    assert result[field] == value
    assert len(ruled_out(words, files)) == (1 if here < len(NO_GRAPHS) else 0)


def test_no_other_flag_is_refused_by_accident(answer: dict[str, Any]) -> None:
    """A beginning of a refused flag is taken for it, so no flag of vLLM may be one."""
    reserved = {
        *flags.SET_BY_VARIABLE, *flags.FIXED, *flags.SECRETS, *flags.ALIASES.values(),
        "enforce-eager", "optimization-level", "all2all-backend", "cudagraph-capture-sizes",
        "max-cudagraph-capture-size",
    }  # fmt: skip
    refused = set()
    for option in answer["options"]:
        (flag,) = flags.read((option,))
        if any(name.startswith(flag.name) for name in reserved):
            refused.add(flag.name)
    assert refused <= reserved
