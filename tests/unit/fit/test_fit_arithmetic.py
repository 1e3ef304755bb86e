"""Parameters, KV cache and memory against what models' pages and vLLM itself say."""

from __future__ import annotations

import contextlib
from typing import Any

import models
import pytest
from fit import kvcache, memory, packing, weights
from fit.judge import Model, Question, measure
from fit.memory import GIB, MIB
from fit.remedy import judge
from fit.shape import ShapeError, read

H200 = 143_771 * MIB


def question(**changes: object) -> Question:
    usual: dict[str, Any] = {
        "gpu": "H200", "total": H200, "gpus": 1, "ranks": 1, "share": 0.90, "context": 4096,
        "concurrency": 1, "kv_dtype": None, "quantization": None, "seqs": None,
        "batched_tokens": None, "vllm": "0.24.0",
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
    cache = kvcache.of(read(config), ranks=1, dtype=None, in_flight=8192)
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
    cache = kvcache.of(read(config), ranks=ranks, dtype=dtype, in_flight=8192)
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
    cache = kvcache.of(shape, ranks=1, dtype=None, in_flight=2 * 2048)
    assert (cache.group_layers, cache.full, cache.local) == (10, 1, 6)
    everything = 62 * 16 * 256 * 2 * 131_072
    assert cache.blocks(131_072) * cache.block_bytes < everything / 4


def test_a_model_with_windows_only_needs_no_more_than_them() -> None:
    cache = kvcache.of(read(models.MISTRAL_7B), ranks=1, dtype=None, in_flight=2 * 2048)
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
    assert low < weights.from_shape(read(config)).total / GIB < high


def test_float32_files_are_loaded_as_16_bits() -> None:
    shape = read(models.SMOLLM2_135M | {"torch_dtype": "float32"})
    assert weights.from_files(shape, 538_000_000, 538_000_000).total == 269_000_000
    # What its config says is no promise: these files are 16 bits already.
    assert weights.from_files(shape, 269_000_000).total == 269_000_000


def test_weights_quantised_at_load_time_shrink_but_for_the_embeddings() -> None:
    shape = read(models.LLAMA_8B)
    plain = weights.from_files(shape, 16 * GIB).total
    packed = weights.from_files(shape, 16 * GIB, quantization="fp8_per_tensor").total
    assert 0.5 * plain < packed < 0.6 * plain


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (None, 32768),
        ({"rope_type": "llama3", "factor": 8.0}, 32768),
        ({"type": "linear", "factor": 4.0}, 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 32768),
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
    assert memory.defaults(H200) == (1024, 8192)
    assert memory.defaults(81_920 * MIB, "NVIDIA A100-SXM4-80GB") == (256, 2048)
    assert memory.defaults(46_068 * MIB) == (256, 2048)
    assert memory.defaults(288_000 * MIB) == (1024, 16384)


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
        (models.LLAMA_70B, {"context": 8192}, "QUANTIZATION=fp8_per_tensor"),
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


def test_a_context_beyond_the_models_own_is_refused() -> None:
    """As vLLM does (config/model.py _get_and_verify_max_len), however much memory there is."""
    found = judge(model(models.LLAMA_8B_SMALL_VOCAB), question(context=16_384))
    assert found.reason == (
        "found a context of 16,384 for m; wanted at most 8,192, for which it is made;"
        " fix: MAX_MODEL_LEN=8192 (or auto)"
    )


def test_a_context_that_the_model_allows_only_when_asked() -> None:
    """Phi-3 128k: vLLM takes 4,096 where nothing is set, and up to 131,072."""
    config = models.PHI3_MINI | {
        "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope"},
    }  # fmt: skip
    assert (read(config).context, read(config).longest) == (4096, 131_072)


BLOCKS_OF_128 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
GROUPS_OF_128 = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}


@pytest.mark.parametrize(
    ("config", "ranks", "words"),
    [
        (models.QWEN3_30B_A3B | BLOCKS_OF_128, 4, "experts' intermediate size of 768 in blocks"),
        (models.QWEN25_7B | GROUPS_OF_128, 8, "28 attention heads"),
        (models.QWEN25_7B | {"num_attention_heads": 32} | GROUPS_OF_128, 8, "size of 18,944 in"),
        (models.QWEN25_7B, 7, "found 4 KV heads"),
    ],
)
def test_what_ranks_cannot_divide(config: dict[str, Any], ranks: int, words: str) -> None:
    found = judge(model(config), question(ranks=ranks, gpus=8))
    assert words in found.reason
    assert "fix: a TENSOR_PARALLEL_SIZE that divides them" in found.reason


@pytest.mark.parametrize(
    ("config", "ranks"),
    [(models.QWEN3_30B_A3B | BLOCKS_OF_128, 2), (models.QWEN25_7B | GROUPS_OF_128, 4),
     (models.LLAMA_8B, 16), (models.GPT_OSS_20B, 8), (models.DEEPSEEK_V3, 8)],
)  # fmt: skip
def test_what_ranks_can_divide(config: dict[str, Any], ranks: int) -> None:
    assert measure(model(config), question(ranks=ranks, gpus=16)).fits


@pytest.mark.parametrize(
    ("config", "asked", "words"),
    [
        (models.LLAMA_8B, "awq", "found QUANTIZATION=awq and weights that are not quantised"),
        (models.QWEN25_7B_AWQ, "gptq", "a model in the form awq; wanted its own"),
    ],
)
def test_quantisation_that_cannot_be_had(config: dict[str, Any], asked: str, words: str) -> None:
    found = judge(model(config), question(quantization=asked))
    assert not found.fits
    assert words in found.reason


@pytest.mark.parametrize("asked", sorted(packing.AT_LOAD))
def test_what_is_made_while_loading_can_be_had(asked: str) -> None:
    """A model without experts gets no smaller where vLLM packs experts alone."""
    shape = read(models.LLAMA_8B)
    whole, packed = weights.from_shape(shape), weights.from_shape(shape, asked)
    assert (packed.total == whole.total) is (asked in packing.EXPERTS_ALONE)
    from_files = weights.from_files(shape, whole.total, quantization=asked)
    assert abs(from_files.total / packed.total - 1) < 0.01
    assert measure(model(models.LLAMA_8B), question(quantization=asked)).fits


def test_experts_are_packed_where_they_alone_are() -> None:
    shape = read(models.QWEN3_30B_A3B)
    whole = weights.from_shape(shape).total
    alone = weights.from_shape(shape, "int8_per_channel_weight_only").total
    every = weights.from_shape(shape, "fp8_per_tensor").total
    assert every < alone < 0.6 * whole


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [("FP8", "modelopt"), ("NVFP4", "modelopt_fp4"), ("MXFP8", "modelopt_mxfp8")],
)
def test_modelopts_kinds_may_be_named(algorithm: str, form: str) -> None:
    own = {"quant_method": "modelopt", "quant_algo": algorithm}
    assert packing.method(own) == form
    config = models.LLAMA_8B | {"quantization_config": own}
    assert measure(model(config), question(quantization=form)).fits


def test_quantisation_that_can_be_had() -> None:
    assert measure(model(models.QWEN25_7B_AWQ), question(quantization="awq_marlin")).fits
    assert measure(model(models.LLAMA_8B), question(quantization="fp8_per_tensor")).fits


def test_each_rank_keeps_what_is_not_divided() -> None:
    """Latent attention's projections down, and KV heads where there are fewer than ranks."""
    deepseek = weights.from_shape(read(models.DEEPSEEK_V3))
    low = 61 * 7168 * (512 + 64 + 1536) * 8.03 / 8
    assert deepseek.per_rank(8) - deepseek.total / 8 > 0.85 * low
    llama = weights.from_shape(read(models.LLAMA_8B))
    kv = 32 * 4096 * 8 * 256 * 2
    assert llama.per_rank(16) - llama.total / 16 > kv / 16


def test_later_versions_take_graphs_and_the_samplers_counts_out_of_the_cache() -> None:
    before, after = (
        measure(model(models.LLAMA_8B_SMALL_VOCAB), question(vllm=version))
        for version in ("0.24.0", "0.33.0")
    )
    less = before.division.kv_cache - after.division.kv_cache
    assert less == after.division.graphs + round(1024 * 49152 * 4.125)
    assert after.kv_cache_tokens == pytest.approx(908_560, rel=0.03)
    eager = measure(model(models.LLAMA_8B_SMALL_VOCAB), question(vllm="0.33.0", eager=True))
    assert eager.division.kv_cache == after.division.kv_cache + after.division.graphs


def test_answers_do_not_depend_on_the_version() -> None:
    """They hold for the most careful one."""
    found = {
        measure(model(models.LLAMA_8B_SMALL_VOCAB), question(vllm=version)).max_concurrency
        for version in ("0.24.0", "0.32.0", "0.33.0", None)
    }
    assert len(found) == 1


def test_a_mixture_of_experts_takes_room_for_the_experts_of_a_token() -> None:
    """Mixtral: two of eight, each 14,336 wide (fused_moe/experts/triton_moe.py): two workspaces of
    8,192 tokens, so some 1.3 GiB, and not four times that."""
    found = measure(model(models.MIXTRAL | {"num_experts_per_tok": 2}), question()).division
    assert 1.2 * GIB < found.activations < 1.6 * GIB


def test_latent_attention_takes_room_for_what_prefill_looks_back_at() -> None:
    """65,536 rows of all heads' keys and values (mla_attention.py)."""
    found = measure(model(models.DEEPSEEK_V3), question(ranks=8, gpus=8, context=163_840)).division
    assert found.activations > 65_536 * 16 * 256 * 2


def test_an_estimate_is_said_and_kept_further_from_the_edge() -> None:
    known, unknown = (
        measure(model(models.LLAMA_8B | {"model_type": kind}), question(vllm=None))
        for kind in ("llama", "mystery")
    )
    assert read(models.LLAMA_8B).rough is None
    assert read(models.LLAMA_8B | {"model_type": "mystery"}).rough == (
        "mystery is counted by the general rule for decoders"
    )
    assert unknown.max_concurrency < known.max_concurrency
    assert unknown.kv_cache_tokens == known.kv_cache_tokens


def test_a_text_config_that_names_only_what_differs() -> None:
    """Gemma 3 4B's config.json leaves heads, vocabulary and context to transformers."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "sliding_window": 1024,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}  # fmt: skip
    shape = read({"model_type": "gemma3", "text_config": text, "torch_dtype": "bfloat16"})
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.context) == (8, 4, 256, 131_072)
    assert weights.count(shape).total / 1e9 == pytest.approx(3.88, rel=0.01)  # of its text part


def test_a_checkpoint_that_asks_for_an_fp8_cache_itself() -> None:
    quantized = {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
    shape = read(models.LLAMA_8B | {"quantization_config": quantized})
    assert kvcache.of(shape, ranks=1, dtype=None, in_flight=0).bytes_per_token == 65_536


@pytest.mark.parametrize("value", ["x", [], {}, -1, 1.5, float("inf"), float("nan")])
@pytest.mark.parametrize(
    "name", ["hidden_size", "head_dim", "intermediate_size", "kv_lora_rank", "num_key_value_heads",
             "max_position_embeddings", "rope_scaling", "layer_types", "num_experts",
             "quantization_config", "sliding_window", "architectures", "torch_dtype"],
)  # fmt: skip
def test_configs_with_odd_values_are_read_or_refused(name: str, value: object) -> None:
    """Whatever stands there: an answer, or the one error that the program turns into a line."""
    with contextlib.suppress(ShapeError):
        shape = read(models.MISTRAL_7B | {name: value})
        measure(Model(name="m", shape=shape, file_bytes=None), question())
