"""Parameters, KV cache and memory against what models' pages and vLLM itself say."""

from __future__ import annotations

from typing import Any

import models
import pytest
from fit import kvcache, memory, weights
from fit.judge import Model, Question, judge, measure
from fit.memory import GIB, MIB
from fit.shape import ShapeError, read

H200 = 143_771 * MIB


def question(**changes: object) -> Question:
    usual: dict[str, Any] = {
        "gpu": "H200", "total": H200, "gpus": 1, "ranks": 1, "share": 0.90, "context": 4096,
        "concurrency": 1, "kv_dtype": None, "quantization": None, "seqs": None,
        "batched_tokens": None,
    }  # fmt: skip
    return Question(**(usual | changes))


def model(config: dict[str, Any], file_bytes: int | None = None) -> Model:
    return Model(name="m", shape=read(config), file_bytes=file_bytes)


@pytest.mark.parametrize(("config", "billions"), models.PARAMETERS)
def test_parameters_are_those_the_models_pages_state(
    config: dict[str, Any], billions: float
) -> None:
    assert weights.count(read(config)).total / 1e9 == pytest.approx(billions, rel=0.012)


@pytest.mark.parametrize(("config", "size"), models.KV_BYTES)
def test_kv_bytes_of_a_token(config: dict[str, Any], size: int) -> None:
    cache = kvcache.of(read(config), ranks=1, dtype=None, batched_tokens=8192)
    assert cache.bytes_per_token == size


@pytest.mark.parametrize(
    ("config", "ranks", "dtype", "size"),
    [
        (models.LLAMA_8B, 2, None, 65536),
        (models.LLAMA_8B, 1, "fp8", 65536),
        (models.LLAMA_8B, 16, None, 16384),  # 8 heads: each of 16 ranks keeps one
        (models.DEEPSEEK_V3, 8, None, 70272),  # latent attention is not divided
        (models.DEEPSEEK_V3, 8, "fp8", 35136),
        (models.DEEPSEEK_V3, 8, "fp8_ds_mla", 40016),
    ],
)
def test_kv_bytes_of_ranks_and_types(
    config: dict[str, Any], ranks: int, dtype: str | None, size: int
) -> None:
    cache = kvcache.of(read(config), ranks=ranks, dtype=dtype, batched_tokens=8192)
    assert cache.bytes_per_token == size


@pytest.mark.parametrize(
    ("config", "changes", "seen"),
    [  # KV tokens that vLLM 0.24.0 reported on H200s
        (models.LLAMA_8B_SMALL_VOCAB, {}, 908_560),
        (models.LLAMA_8B_SMALL_VOCAB, {"ranks": 2, "gpus": 2}, 1_930_480),
        (models.SMOLLM2_135M, {}, 5_826_256),
    ],
)
def test_kv_tokens_that_vllm_reported(
    config: dict[str, Any], changes: dict[str, Any], seen: int
) -> None:
    assert measure(model(config), question(**changes)).kv_cache_tokens == pytest.approx(
        seen, rel=0.01
    )


def test_layers_with_a_window_keep_that_much() -> None:
    """Gemma 3: five of six layers keep the last 1,024 tokens, so that a long context costs about a
    sixth of what it would."""
    shape = read(models.GEMMA3_27B)
    cache = kvcache.of(shape, ranks=1, dtype=None, batched_tokens=2048)
    assert (cache.group_layers, cache.full, cache.local) == (10, 1, 6)
    everything = 62 * 16 * 256 * 2 * 131_072
    assert cache.blocks(131_072) * cache.block_bytes < everything / 4


def test_a_model_with_windows_only_needs_no_more_than_them() -> None:
    cache = kvcache.of(read(models.MISTRAL_7B), ranks=1, dtype=None, batched_tokens=2048)
    assert cache.blocks(32_768) == (4095 + 2 * 2048 + 15) // 16 + 1
    assert cache.blocks(1000) == 64


def test_windows_that_are_off_count_for_nothing() -> None:
    assert set(read(models.QWEN25_7B).kinds) == {"full"}


@pytest.mark.parametrize(
    ("config", "low", "high"),
    [  # GiB of the published files
        (models.QWEN25_7B_AWQ, 5.0, 5.7),
        (models.GPT_OSS_20B, 12.3, 13.6),
        (models.DEEPSEEK_V3, 620.0, 645.0),
    ],
)
def test_quantised_weights_from_the_config_alone(
    config: dict[str, Any], low: float, high: float
) -> None:
    assert low < weights.from_shape(read(config)) / GIB < high


def test_float32_files_are_loaded_as_16_bits() -> None:
    shape = read(models.SMOLLM2_135M | {"torch_dtype": "float32"})
    assert weights.from_files(shape, 538_000_000) == 269_000_000


def test_weights_quantised_at_load_time_shrink_but_for_the_embeddings() -> None:
    shape = read(models.LLAMA_8B)
    plain, packed = weights.from_files(shape, 16 * GIB), weights.from_files(shape, 16 * GIB, "fp8")
    assert 0.5 * plain < packed < 0.6 * plain


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (None, 32768),
        ({"rope_type": "llama3", "factor": 8.0}, 32768),
        ({"type": "linear", "factor": 4.0}, 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"rope_type": "longrope", "factor": 4.0}, 32768),
    ],
)
def test_the_models_own_context(scaling: dict[str, Any] | None, context: int) -> None:
    config = models.QWEN25_7B | {"rope_scaling": scaling}
    assert read(config).context == context


@pytest.mark.parametrize("config", [{}, {"hidden_size": 8}, {"text_config": 3}])
def test_a_config_without_sizes_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"wanted|no object"):
        read(config)


def test_limits_of_a_step_by_the_gpu() -> None:
    assert memory.defaults(H200) == memory.Limits(1024, 8192)
    assert memory.defaults(81_920 * MIB, "NVIDIA A100-SXM4-80GB") == memory.Limits(256, 2048)
    assert memory.defaults(46_068 * MIB) == memory.Limits(256, 2048)
    assert memory.defaults(288_000 * MIB) == memory.Limits(1024, 16384)


def test_70b_on_24_gb() -> None:
    found = judge(model(models.LLAMA_70B), question(gpu="24 GB", total=24_564 * MIB))
    assert not found.fits
    assert "found m with 131.4 GiB of weights" in found.reason
    assert "wanted at most" in found.reason
    assert "fix: a smaller or quantised MODEL" in found.reason


def test_two_ranks_on_one_gpu() -> None:
    found = judge(model(models.LLAMA_8B), question(ranks=2))
    assert found.reason == (
        "found 1 GPU (H200); wanted 2 (TENSOR_PARALLEL_SIZE);"
        " fix: TENSOR_PARALLEL_SIZE=1, or a host with more GPUs"
    )


def test_heads_that_ranks_do_not_divide() -> None:
    found = judge(model(models.SMOLLM2_135M), question(ranks=2, gpus=8))
    assert "found 9 attention heads" in found.reason


@pytest.mark.parametrize(
    ("config", "changes", "fix"),
    [
        (models.LLAMA_8B, {"total": 20_475 * MIB, "context": None}, "MAX_MODEL_LEN="),
        (models.LLAMA_70B, {"gpus": 8, "context": 8192}, "TENSOR_PARALLEL_SIZE=2"),
        (models.LLAMA_70B, {"context": 8192}, "QUANTIZATION=fp8"),
    ],
)
def test_the_remedy_works(config: dict[str, Any], changes: dict[str, Any], fix: str) -> None:
    found = judge(model(config), question(**changes))
    assert not found.fits
    assert fix in found.reason.rpartition("fix: ")[2]


@pytest.mark.parametrize("config", [config for config, _ in models.PARAMETERS])
@pytest.mark.parametrize("total", [20_475, 46_068, 81_559, 143_771])
def test_what_is_said_of_a_context_holds_for_it(config: dict[str, Any], total: int) -> None:
    """The largest context fits, one block more does not; and the answer is below the prediction."""
    asked = question(total=total * MIB, gpu="x", gpus=8, ranks=1, context=None)
    found = measure(model(config), asked)
    if not found.max_context:
        return
    at = question(total=total * MIB, gpu="x", gpus=8, ranks=1, context=found.max_context)
    assert measure(model(config), at).fits
    if found.max_context < found.context:
        over = question(total=total * MIB, gpu="x", gpus=8, context=found.max_context + 16)
        assert not measure(model(config), over).fits
    assert found.division.kv_cache_safe < found.division.kv_cache


def test_an_encoder_needs_no_cache_for_a_context() -> None:
    config = models.QWEN3_06B | {"architectures": ["Qwen3ForSequenceClassification"]}
    assert read(config).pooling
