"""What the launcher renders, read by the real vLLM's own argument parser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launcher import argv, flags
from launcher.settings import load

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
    ({"COMPILATION_CONFIG": "2"}, {"mode": "DYNAMO_TRACE_ONCE"}),
    ({"SERVED_MODEL_NAME": "a,b", "ENGINE_DRAIN_S": "75"},
     {"served_model_name": ["a", "b", "default"], "shutdown_timeout": 90}),
    ({"VLLM_EXTRA_ARGS": "--seed 7 --chat-template '{{ a b }}'"},
     {"seed": 7, "chat_template": "{{ a b }}"}),
]  # fmt: skip


def ask(engine_python: str, lists: list[list[str]]) -> dict[str, Any]:
    done = subprocess.run(
        [engine_python, str(Path(__file__).with_name("parse_with_vllm.py"))],
        input=json.dumps(lists),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "VLLM_LOGGING_LEVEL": "ERROR",
             "VLLM_NO_USAGE_STATS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


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


@pytest.fixture(scope="module")
def answer(engine_python: str) -> dict[str, Any]:
    """One start of vLLM's parser (its imports take ten seconds) for all of this file."""
    rendered = [argv.arguments(load(environ), "/models/m", "acme/m") for environ, _ in CASES]
    return ask(engine_python, [*rendered, *[words for words, _, _ in SPELLINGS]])


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


def test_no_other_flag_is_refused_by_accident(answer: dict[str, Any]) -> None:
    """A beginning of a refused flag is taken for it, so no flag of vLLM may be one."""
    reserved = {*flags.SET_BY_VARIABLE, *flags.FIXED, *flags.SECRETS, *flags.ALIASES.values()}
    refused = set()
    for option in answer["options"]:
        (flag,) = flags.read((option,))
        if any(name.startswith(flag.name) for name in reserved):
            refused.add(flag.name)
    assert refused <= reserved
