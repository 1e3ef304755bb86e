"""Every variable: what is taken, what is refused, and with which line."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launcher.options import values
from launcher.options.settings import Settings, SettingsError, load


def one(name: str, text: str, **more: str) -> Settings:
    return load({name: text, **more})


def refusal(name: str, text: str, **more: str) -> str:
    with pytest.raises(SettingsError) as error:
        load({name: text, **more})
    (line,) = error.value.lines
    assert "\n" not in line
    for word in ("found", "wanted", "fix:"):
        assert word in line
    return line


TAKEN = [
    ("MODEL", "auto", "model", "auto"),
    ("MODEL", " Qwen/Qwen3-8B ", "model", "Qwen/Qwen3-8B"),
    ("MODEL", "gpt2", "model", "gpt2"),
    ("MODEL", "/models/my model", "model", "/models/my model"),
    ("MODEL_REVISION", "refs/pr/3", "model_revision", "refs/pr/3"),
    ("SERVED_MODEL_NAME", "a, b c,a", "served_model_name", ("a", "b", "c")),
    ("TENSOR_PARALLEL_SIZE", "8", "tensor_parallel_size", 8),
    ("GPU_MEMORY_UTILIZATION", "1", "gpu_memory_utilization", 1.0),
    ("GPU_MEMORY_UTILIZATION", ".5", "gpu_memory_utilization", 0.5),
    ("MAX_MODEL_LEN", "4096", "max_model_len", "4096"),
    ("MAX_MODEL_LEN", "8k", "max_model_len", "8k"),
    ("MAX_MODEL_LEN", "8K", "max_model_len", "8K"),
    ("MAX_MODEL_LEN", "25.6k", "max_model_len", "25.6k"),
    ("MAX_MODEL_LEN", "AUTO", "max_model_len", "auto"),
    ("MAX_MODEL_LEN", "-1", "max_model_len", "auto"),
    ("MAX_NUM_SEQS", "256", "max_num_seqs", 256),
    ("MAX_NUM_BATCHED_TOKENS", "8k", "max_num_batched_tokens", "8k"),
    ("KV_CACHE_DTYPE", "fp8_e5m2", "kv_cache_dtype", "fp8_e5m2"),
    ("QUANTIZATION", "compressed-tensors", "quantization", "compressed-tensors"),
    ("ENABLE_PREFIX_CACHING", "Off", "enable_prefix_caching", False),
    ("ENABLE_PREFIX_CACHING", "yes", "enable_prefix_caching", True),
    ("TOOL_CALL_PARSER", "hermes", "tool_call_parser", "hermes"),
    ("REASONING_PARSER", "qwen3", "reasoning_parser", "qwen3"),
    ("API_SERVER_COUNT", "4", "api_server_count", 4),
    ("REQUIRE_CUDA_GRAPHS", "false", "require_cuda_graphs", False),
    ("ENGINE_DEBUG", "on", "debug", True),
    ("COMPILATION_CONFIG", '{"mode":3}', "compilation_config", {"mode": 3}),
    ("COMPILATION_CONFIG", "'{\"mode\":3}'", "compilation_config", {"mode": 3}),
    ("COMPILATION_CONFIG", '{"mode": 3, "x": ["a b"]}', "compilation_config",
     {"mode": 3, "x": ["a b"]}),
    ("COMPILATION_CONFIG", '{"a":"$HOME"}', "compilation_config", {"a": "$HOME"}),
    ("COMPILATION_CONFIG", "3", "compilation_config", {"mode": 3}),
    ("VLLM_EXTRA_ARGS", "--seed 1 --chat-template 'a b'", "extra_args",
     ("--seed", "1", "--chat-template", "a b")),
    ("ENGINE_DRAIN_S", "0", "drain_s", 15), ("ENGINE_DRAIN_S", "7.2", "drain_s", 23),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "field", "value"), TAKEN)
def test_taken(name: str, text: str, field: str, value: object) -> None:
    assert getattr(one(name, text), field) == value


REFUSED = [
    ("MODEL", "--help"), ("MODEL", "a/b/c"), ("MODEL", "two words"), ("MODEL", "a\nb"),
    ("MODEL_REVISION", "--x"), ("MODEL_REVISION", "a b"), ("MODEL_REVISION", "../x"),
    ("SERVED_MODEL_NAME", "a\"b"), ("SERVED_MODEL_NAME", ","), ("SERVED_MODEL_NAME", "--host"),
    ("TENSOR_PARALLEL_SIZE", "two"), ("TENSOR_PARALLEL_SIZE", "0"),
    ("TENSOR_PARALLEL_SIZE", "-1"), ("TENSOR_PARALLEL_SIZE", "all"),
    ("TENSOR_PARALLEL_SIZE", "1.0"), ("TENSOR_PARALLEL_SIZE", "1_0"),
    ("TENSOR_PARALLEL_SIZE", "²"), ("TENSOR_PARALLEL_SIZE", "٢"),
    ("GPU_MEMORY_UTILIZATION", "1.5"), ("GPU_MEMORY_UTILIZATION", "0"),
    ("GPU_MEMORY_UTILIZATION", "90%"), ("GPU_MEMORY_UTILIZATION", "nan"),
    ("GPU_MEMORY_UTILIZATION", "inf"), ("GPU_MEMORY_UTILIZATION", "-0.5"),
    ("GPU_MEMORY_UTILIZATION", "0,9"), ("GPU_MEMORY_UTILIZATION", "1e-1"),
    ("MAX_MODEL_LEN", "0"), ("MAX_MODEL_LEN", "8 k"), ("MAX_MODEL_LEN", "-2"),
    ("MAX_MODEL_LEN", "1.5K"), ("MAX_MODEL_LEN", "1.5"), ("MAX_MODEL_LEN", "lots"),
    ("MAX_NUM_SEQS", "0"), ("MAX_NUM_SEQS", "1k"), ("MAX_NUM_BATCHED_TOKENS", "auto"),
    ("KV_CACHE_DTYPE", "fp8 --host"), ("QUANTIZATION", "-x"), ("ENABLE_PREFIX_CACHING", "maybe"),
    ("TOOL_CALL_PARSER", "a b"), ("REASONING_PARSER", "a;b"),
    ("API_SERVER_COUNT", "many"), ("API_SERVER_COUNT", "0"), ("REQUIRE_CUDA_GRAPHS", "2"),
    ("COMPILATION_CONFIG", "{bad"), ("COMPILATION_CONFIG", "4"), ("COMPILATION_CONFIG", "[1]"),
    ("COMPILATION_CONFIG", '"x"'), ("COMPILATION_CONFIG", "true"), ("COMPILATION_CONFIG", "''"),
    ("COMPILATION_CONFIG", '{"a":NaN}'), ("COMPILATION_CONFIG", "[" * 5000),
    ("VLLM_EXTRA_ARGS", "--a 'open"), ("VLLM_EXTRA_ARGS", "model-name"),
    ("ENGINE_DEVICE", "tpu"), ("ENGINE_PORT", "0"), ("ENGINE_PORT", "65536"),
    ("ENGINE_STATUS_PORT", "x"), ("ENGINE_HOST", "--x"), ("ENGINE_DRAIN_S", "-1"),
    ("ENGINE_MODELS_DIR", "relative"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_refused(name: str, text: str) -> None:
    line = refusal(name, text)
    assert line.startswith(f"{name}: ")
    assert len(line) < 400


@pytest.mark.parametrize("name", sorted({row[0] for row in TAKEN + REFUSED}))
@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_blank_is_unset(name: str, blank: str) -> None:
    assert load({name: blank}) == load({})


def test_defaults() -> None:
    plain = load({})
    assert plain.gpu_memory_utilization == 0.90
    assert plain.tensor_parallel_size == 1
    assert plain.require_cuda_graphs
    assert not load({"ENGINE_DEVICE": "cpu"}).require_cuda_graphs
    assert (plain.port, plain.status_port) == (8000, 8001)


def test_debug_mode_takes_the_demand_for_graphs_back() -> None:
    assert not load({}).debug
    debug = load({"ENGINE_DEBUG": "1", "REQUIRE_CUDA_GRAPHS": "true", "VLLM_EXTRA_ARGS": "-O0"})
    assert (debug.debug, debug.require_cuda_graphs) == (True, False)


def test_every_bad_variable_has_its_line() -> None:
    with pytest.raises(SettingsError) as error:
        load({"TENSOR_PARALLEL_SIZE": "two", "GPU_MEMORY_UTILIZATION": "2", "MODEL": "x y"})
    assert [line.partition(":")[0] for line in error.value.lines] == [
        "MODEL", "TENSOR_PARALLEL_SIZE", "GPU_MEMORY_UTILIZATION",
    ]  # fmt: skip


GRAPHS_OFF = [
    ({"COMPILATION_CONFIG": "0"}, "COMPILATION_CONFIG"),
    ({"COMPILATION_CONFIG": '{"mode":"NONE"}'}, "COMPILATION_CONFIG"),
    ({"COMPILATION_CONFIG": '{"cudagraph_mode":"none"}'}, "COMPILATION_CONFIG"),
    ({"COMPILATION_CONFIG": '{"cudagraph_mode":0}'}, "COMPILATION_CONFIG"),
    ({"VLLM_EXTRA_ARGS": "--enforce-eager"}, "VLLM_EXTRA_ARGS"),
    ({"VLLM_EXTRA_ARGS": "--enforce_eager"}, "VLLM_EXTRA_ARGS"),
    ({"VLLM_EXTRA_ARGS": "--enforce-e"}, "VLLM_EXTRA_ARGS"),
    ({"VLLM_EXTRA_ARGS": "-O0"}, "VLLM_EXTRA_ARGS"),
    ({"VLLM_EXTRA_ARGS": "-O=0"}, "VLLM_EXTRA_ARGS"),
    ({"VLLM_EXTRA_ARGS": "-O 0"}, "VLLM_EXTRA_ARGS"),
    ({"VLLM_EXTRA_ARGS": "--optimization_level=0"}, "VLLM_EXTRA_ARGS"),
    ({"TORCHDYNAMO_DISABLE": "1"}, "TORCHDYNAMO_DISABLE"),
    ({"TORCH_COMPILE_DISABLE": "true"}, "TORCH_COMPILE_DISABLE"),
]


@pytest.mark.parametrize(("environ", "name"), GRAPHS_OFF)
def test_what_rules_graphs_out_is_refused_on_a_gpu(environ: dict[str, str], name: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(environ)
    (line,) = error.value.lines
    assert line.startswith(f"{name}: found")
    assert "REQUIRE_CUDA_GRAPHS" in line
    load({**environ, "REQUIRE_CUDA_GRAPHS": "false"})
    load({**environ, "ENGINE_DEVICE": "cpu"})


@pytest.mark.parametrize(
    "environ",
    [
        {"VLLM_EXTRA_ARGS": "--enforce-eager --no-enforce-eager"},
        {"VLLM_EXTRA_ARGS": "-O1"},
        {"VLLM_EXTRA_ARGS": "-O 3"},
        {"COMPILATION_CONFIG": '{"cudagraph_mode":"FULL_DECODE_ONLY"}'},
        {"TORCHDYNAMO_DISABLE": "0"},
        {"TORCHDYNAMO_DISABLE": ""},
    ],
)
def test_what_leaves_graphs_in_force_is_taken(environ: dict[str, str]) -> None:
    assert load(environ).require_cuda_graphs


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_breaks_a_parser(text: str) -> None:
    """Any text gives a value or one readable line, for every variable."""
    for name in sorted({row[0] for row in TAKEN + REFUSED}):
        try:
            load({name: text})
        except SettingsError as error:
            (line,) = error.lines
            assert line.startswith(name)
            assert line.isprintable()


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), max_size=5))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    assert values.arguments(shlex.join(words)) == tuple(words)


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans()), max_size=5))
def test_json_comes_back_as_it_was(value: dict[str, object]) -> None:
    text = json.dumps(value)
    assert values.compilation_config(text) == value
    assert values.compilation_config(f"'{text}'") == value


@settings(deadline=None)
@given(st.integers(1, 10**6), st.sampled_from("kKmMgGtT"))
def test_sizes_are_passed_on_as_written(number: int, suffix: str) -> None:
    assert values.size(f"{number}{suffix}") == f"{number}{suffix}"
