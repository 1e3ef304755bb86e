"""Settings that rule CUDA graphs out. What vLLM makes of the same words: tests/engine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from launcher.cudagraphs import graphs, required
from launcher.options import configfile
from launcher.options.configfile import ConfigFileError
from launcher.options.given import ConfigFile
from launcher.options.settings import SettingsError, load
from launcher.preflight import NotFitError


def found(environ: dict[str, str], file: ConfigFile | None = None) -> list[str]:
    config = environ.get("COMPILATION_CONFIG")
    arguments = tuple(shlex.split(environ.get("VLLM_EXTRA_ARGS", "")))
    read = json.loads(config) if config else None
    return [each.found for each in graphs.ruled_out(read, arguments, environ, file)]


# What is set, and how its one line begins.
OFF = [
    ({"VLLM_EXTRA_ARGS": "--enforce-eager"}, "VLLM_EXTRA_ARGS: found --enforce-eager"),
    ({"VLLM_EXTRA_ARGS": "--enforce_eager"}, "VLLM_EXTRA_ARGS: found --enforce_eager"),
    ({"VLLM_EXTRA_ARGS": "--enforce-eager=True"}, "VLLM_EXTRA_ARGS: found --enforce-eager"),
    ({"VLLM_EXTRA_ARGS": "--enforce-eager True"}, "VLLM_EXTRA_ARGS: found --enforce-eager"),
    ({"VLLM_EXTRA_ARGS": "--enforce-eager False"}, "VLLM_EXTRA_ARGS: found --enforce-eager"),
    ({"VLLM_EXTRA_ARGS": "--enf"}, "VLLM_EXTRA_ARGS: found --enf"),
    ({"VLLM_EXTRA_ARGS": "--no-enforce-eager --enforce-eager"}, "VLLM_EXTRA_ARGS: found --enf"),
    ({"VLLM_EXTRA_ARGS": "-O0"}, "VLLM_EXTRA_ARGS: found -O0 (level 0)"),
    ({"VLLM_EXTRA_ARGS": "-O 0"}, "VLLM_EXTRA_ARGS: found -O (level 0)"),
    ({"VLLM_EXTRA_ARGS": "-O=0"}, "VLLM_EXTRA_ARGS: found -O (level 0)"),
    ({"VLLM_EXTRA_ARGS": "-O00"}, "VLLM_EXTRA_ARGS: found -O00 (level 0)"),
    ({"VLLM_EXTRA_ARGS": "-O2 --optimization-level 0"}, "VLLM_EXTRA_ARGS: found --optimization"),
    ({"VLLM_EXTRA_ARGS": "--optimization_level=0"}, "VLLM_EXTRA_ARGS: found --optimization_level"),
    ({"VLLM_EXTRA_ARGS": "--opt +0"}, "VLLM_EXTRA_ARGS: found --opt"),
    ({"VLLM_EXTRA_ARGS": "-O0", "COMPILATION_CONFIG": '{"cudagraph_mode":"FULL_AND_PIECEWISE"}'},
     "VLLM_EXTRA_ARGS: found -O0 (level 0)"),
    ({"VLLM_EXTRA_ARGS": "-O0", "COMPILATION_CONFIG": '{"mode":3}'},
     "VLLM_EXTRA_ARGS: found -O0 (level 0)"),
    ({"VLLM_EXTRA_ARGS": "--max-cudagraph-capture-size 0"}, "VLLM_EXTRA_ARGS: found --max-cuda"),
    ({"VLLM_EXTRA_ARGS": "--max_cudagraph=0"}, "VLLM_EXTRA_ARGS: found --max_cuda"),
    ({"VLLM_EXTRA_ARGS": "--cudagraph-capture-sizes 0"}, "VLLM_EXTRA_ARGS: found --cudagraph-c"),
    ({"VLLM_EXTRA_ARGS": "--all2all-backend deepep_high_throughput -dp 2"},
     "VLLM_EXTRA_ARGS: found --all2all-backend deepep_high_throughput"),
    ({"COMPILATION_CONFIG": '{"mode":0}'}, "COMPILATION_CONFIG: found mode 0"),
    ({"COMPILATION_CONFIG": '{"mode":0.0}'}, "COMPILATION_CONFIG: found mode 0.0"),
    ({"COMPILATION_CONFIG": '{"mode":false}'}, "COMPILATION_CONFIG: found mode False"),
    ({"COMPILATION_CONFIG": '{"mode":"none"}'}, "COMPILATION_CONFIG: found mode 'none'"),
    ({"COMPILATION_CONFIG": '{"mode":"NONE"}'}, "COMPILATION_CONFIG: found mode 'NONE'"),
    ({"COMPILATION_CONFIG": '{"mode":1}'}, "COMPILATION_CONFIG: found mode 1"),
    ({"COMPILATION_CONFIG": '{"mode":"stock_torch_compile","cudagraph_mode":"FULL"}'},
     "COMPILATION_CONFIG: found mode 'stock_torch_compile'"),
    ({"COMPILATION_CONFIG": '{"mode":2}'}, "COMPILATION_CONFIG: found mode 2"),
    ({"COMPILATION_CONFIG": '{"mode":"DYNAMO_TRACE_ONCE","cudagraph_mode":"PIECEWISE"}'},
     "COMPILATION_CONFIG: found mode 'DYNAMO_TRACE_ONCE'"),
    ({"COMPILATION_CONFIG": '{"cudagraph_mode":"NONE"}'}, "COMPILATION_CONFIG: found cudagraph_m"),
    ({"COMPILATION_CONFIG": '{"cudagraph_mode":"none"}'}, "COMPILATION_CONFIG: found cudagraph_m"),
    ({"COMPILATION_CONFIG": '{"cudagraph_mode":0}'}, "COMPILATION_CONFIG: found cudagraph_mode 0"),
    ({"COMPILATION_CONFIG": '{"cudagraph_mode":false}'}, "COMPILATION_CONFIG: found cudagraph_mo"),
    ({"COMPILATION_CONFIG": '{"cudagraph_capture_sizes":[]}'}, "COMPILATION_CONFIG: found cudagr"),
    ({"COMPILATION_CONFIG": '{"cudagraph_capture_sizes":[0,-1]}'}, "COMPILATION_CONFIG: found cu"),
    ({"COMPILATION_CONFIG": '{"max_cudagraph_capture_size":0}'}, "COMPILATION_CONFIG: found max_"),
    ({"COMPILATION_CONFIG": '{"max_cudagraph_capture_size":"0"}'}, "COMPILATION_CONFIG: found ma"),
    ({"COMPILATION_CONFIG": '{"splitting_ops":[],"cudagraph_mode":"PIECEWISE"}'},
     "COMPILATION_CONFIG: found splitting_ops []"),
    ({"COMPILATION_CONFIG": '{"splitting_ops":[]}', "VLLM_EXTRA_ARGS": "-O1"},
     "COMPILATION_CONFIG: found splitting_ops []"),
    ({"TORCHDYNAMO_DISABLE": "1"}, "TORCHDYNAMO_DISABLE: found '1'"),
    ({"TORCH_COMPILE_DISABLE": "1"}, "TORCH_COMPILE_DISABLE: found '1'"),
    ({"TORCH_COMPILE_OVERRIDE_BACKENDS": ">=0:eager"}, "TORCH_COMPILE_OVERRIDE_BACKENDS: found"),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "begins"), OFF)
def test_what_rules_graphs_out(environ: dict[str, str], begins: str) -> None:
    (line,) = found(environ)
    assert line.startswith(begins)


@pytest.mark.parametrize(("environ", "begins"), OFF)
def test_it_is_refused_only_where_graphs_are_required(environ: dict[str, str], begins: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(environ)
    (line,) = error.value.lines
    assert line.startswith(begins)
    assert "; wanted graphs, since REQUIRE_CUDA_GRAPHS is true; fix: " in line
    assert line.isprintable()
    load({**environ, "REQUIRE_CUDA_GRAPHS": "false"})
    load({**environ, "ENGINE_DEVICE": "cpu"})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"VLLM_EXTRA_ARGS": "--enforce-eager --no-enforce-eager"},
        {"VLLM_EXTRA_ARGS": "-O0 -O2"},
        {"VLLM_EXTRA_ARGS": "-O1"},
        {"VLLM_EXTRA_ARGS": "--optimization-level 3"},
        {"VLLM_EXTRA_ARGS": "--cudagraph-capture-sizes 1 2 4"},
        {"VLLM_EXTRA_ARGS": "--cudagraph-capture-sizes 0 8"},
        {"VLLM_EXTRA_ARGS": "--max-cudagraph-capture-size=8"},
        {"VLLM_EXTRA_ARGS": "--cudagraph-metrics"},
        {"VLLM_EXTRA_ARGS": "--all2all-backend deepep_high_throughput"},
        {"VLLM_EXTRA_ARGS": "--all2all-backend deepep_low_latency --data-parallel-size 2"},
        {"VLLM_EXTRA_ARGS": '--speculative-config {"enforce_eager":true}'},
        {"COMPILATION_CONFIG": "{}"},
        {"COMPILATION_CONFIG": '{"mode":3}'},
        {"COMPILATION_CONFIG": '{"mode":null,"cudagraph_mode":null}'},
        {"COMPILATION_CONFIG": '{"mode":"vllm_compile"}'},
        {"COMPILATION_CONFIG": '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}'},
        {"COMPILATION_CONFIG": '{"mode":0,"cudagraph_mode":2}'},
        {"COMPILATION_CONFIG": '{"mode":0}', "VLLM_USE_BREAKABLE_CUDAGRAPH": "1"},
        {"COMPILATION_CONFIG": '{"mode":3,"cudagraph_mode":"FULL"}', "VLLM_EXTRA_ARGS": "-O0"},
        {"COMPILATION_CONFIG": '{"cudagraph_mode":"FULL"}', "VLLM_EXTRA_ARGS": "-O0"},
        # Fewer graphs, and still graphs: the proof tells how many.
        {"COMPILATION_CONFIG": '{"cudagraph_mode":"PIECEWISE"}'},
        {"COMPILATION_CONFIG": '{"cudagraph_mode":1}'},
        {"COMPILATION_CONFIG": '{"splitting_ops":[]}'},
        {"COMPILATION_CONFIG": '{"backend":"eager"}'},
        {"TORCHDYNAMO_DISABLE": "0", "TORCH_COMPILE_DISABLE": ""},
        {"PYTORCH_JIT": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_DISABLE_COMPILE_CACHE": "1"},
        {"VLLM_USE_AOT_COMPILE": "0", "VLLM_USE_STANDALONE_COMPILE": "0"},
    ],
)
def test_what_leaves_graphs(environ: dict[str, str]) -> None:
    assert found(environ) == []


def test_every_cause_has_its_line() -> None:
    environ = {"VLLM_EXTRA_ARGS": "--enforce-eager -O0", "TORCHDYNAMO_DISABLE": "1"}
    with pytest.raises(SettingsError) as error:
        load({**environ, "COMPILATION_CONFIG": '{"cudagraph_capture_sizes":[]}'})
    assert [line.partition(":")[0] for line in error.value.lines] == [
        "VLLM_EXTRA_ARGS", "VLLM_EXTRA_ARGS", "COMPILATION_CONFIG", "TORCHDYNAMO_DISABLE",
    ]  # fmt: skip


FILES_OFF = [
    "enforce-eager: true\n",
    "enforce_eager: true\n",
    "enforce-e: true\n",
    "enforce-eager: yes\n",  # YAML's own word for true
    "optimization-level: 0\n",
    "optimization_level: '0'\n",
    "compilation-config:\n  cudagraph_mode: NONE\n",
    "compilation_config: '{\"mode\": 0}'\n",
    "compilation_config.cudagraph_mode: none\n",
    "cudagraph-capture-sizes: [0]\n",
    "max-cudagraph-capture-size: 0\n",
    "all2all-backend: deepep_high_throughput\ndata-parallel-size: 2\n",
]
FILES_ON = [
    "",
    "- a list\n",
    "enforce-eager: false\n",
    "seed: 7\nchat-template: x\n",
    "cudagraph-capture-sizes: [1, 2]\n",
    "compilation-config:\n  pass_config: {fuse_norm_quant: true}\n",
    "'': true\n",
]


def in_file(folder: Path, text: str) -> ConfigFile:
    path = folder / "vllm.yaml"
    path.write_text(text)
    read = configfile.read(("--seed", "1", "--config", str(path)))
    assert read is not None
    return read


@pytest.mark.parametrize("text", FILES_OFF)
def test_a_file_may_rule_graphs_out(tmp_path: Path, text: str) -> None:
    (line,) = found({}, in_file(tmp_path, text))
    assert line.startswith(f"VLLM_EXTRA_ARGS: found --config {tmp_path}/vllm.yaml with ")


@pytest.mark.parametrize("text", FILES_ON)
def test_a_file_may_leave_graphs(tmp_path: Path, text: str) -> None:
    assert found({}, in_file(tmp_path, text)) == []


def test_the_command_line_counts_more_than_the_file(tmp_path: Path) -> None:
    eager = in_file(tmp_path, "enforce-eager: true\noptimization-level: 0\n")
    assert found({"VLLM_EXTRA_ARGS": "--no-enforce-eager -O2"}, eager) == []
    whole = in_file(tmp_path, "compilation-config: {cudagraph_mode: NONE}\n")
    assert found({"COMPILATION_CONFIG": "{}"}, whole) == []
    # Dotted parts are put together last, whoever wrote them.
    parts = in_file(tmp_path, "compilation-config.cudagraph_mode: NONE\n")
    assert len(found({"COMPILATION_CONFIG": "{}"}, parts)) == 1


def test_the_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("enforce-eager: true\n")
    environ = {"VLLM_EXTRA_ARGS": f"--config {path}"}
    with pytest.raises(NotFitError) as error:
        required.ruled_out(load(environ), environ, required.config_file(load(environ)))
    (line,) = error.value.lines
    assert f"--config {path} with enforce-eager" in line
    assert "REQUIRE_CUDA_GRAPHS=false" in line
    for other in ({"REQUIRE_CUDA_GRAPHS": "false"}, {"ENGINE_DEVICE": "cpu"}):
        read = load({**environ, **other})
        assert len(required.ruled_out(read, environ, required.config_file(read))) == 1


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "not readable (No such file"), (b"\xff\xfe", "no UTF-8"), (b"a: [", "no YAML")],
)
def test_a_file_that_can_not_be_read(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = tmp_path / "vllm.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigFileError) as error:
        configfile.read(("--config", str(path)))
    assert what in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(NotFitError):
        required.config_file(load({"VLLM_EXTRA_ARGS": f"--config {path}"}))


def test_what_names_no_file() -> None:
    """vLLM looks for the word itself, and for its last place an error is vLLM's own."""
    for words in ("", "--config", "--config=/nowhere.yaml", "--config-format hf"):
        assert configfile.read(tuple(shlex.split(words))) is None


def test_a_cache_turned_off_is_a_note() -> None:
    (line,) = graphs.notes({"VLLM_DISABLE_COMPILE_CACHE": "1"})
    assert line.startswith("VLLM_DISABLE_COMPILE_CACHE: found")
    assert graphs.notes({}) == graphs.notes({"VLLM_DISABLE_COMPILE_CACHE": "0"}) == ()


@hypothesis_settings(deadline=None)
@given(
    st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.floats()
                                            | st.text(), st.lists, max_leaves=3), max_size=4),
    st.lists(st.sampled_from(["--enforce-eager", "-O", "0", "--", "-cc", "--no-", "x", "--a.b=c"])),
)  # fmt: skip
def test_no_setting_breaks_the_rules(config: dict[str, object], words: list[str]) -> None:
    file = ConfigFile("x.yaml", configfile.words(config))
    for finding in graphs.ruled_out(config, tuple(words), {}, file):
        assert graphs.refusal(finding)


@hypothesis_settings(deadline=None)
@given(
    st.sampled_from(["mode", "cudagraph_mode", "max_cudagraph_capture_size", "splitting_ops"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_no_value_breaks_the_rules(key: str, value: object) -> None:
    graphs.ruled_out({key: value}, (), {})
