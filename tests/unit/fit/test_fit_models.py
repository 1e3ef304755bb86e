"""Real configs against what vLLM 0.32 itself makes of them (tests/data/vllm_models.json)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import models
import pytest
import vllm_says
from fit import kvcache, packing, weights
from fit.judge import Model, Question, measure
from fit.memory import MIB
from fit.shape import read


@pytest.mark.parametrize(
    "answer", models.vllm_answers(), ids=lambda one: f"{one['model']}-{one['ranks']}"
)
def test_vllm_made_the_same_of_it(answer: dict[str, Any]) -> None:
    vllm_says.holds(answer, models.load(answer["model"]))


@pytest.mark.parametrize("mib", [16_376, 20_475, 24_564, 46_068, 81_559, 143_771, 183_359])
@pytest.mark.parametrize(
    "answer", models.vllm_answers(), ids=lambda one: f"{one['model']}-{one['ranks']}"
)
def test_what_fits_leaves_room_beside_vllms_own_weights(answer: dict[str, Any], mib: int) -> None:
    """Where it says yes, the weights as vLLM counts them, one request, the graphs and the step are
    below what the GPU may hold; where it says no for want of room, it is not by more than the
    margins that it keeps."""
    asked = Question(
        gpu="x", total=mib * MIB, gpus=16, ranks=answer["ranks"], share=0.9, context=4096,
        concurrency=1, kv_dtype=None, quantization=None, seqs=None, batched_tokens=None,
    )  # fmt: skip
    shape = read(models.load(answer["model"]))
    found = measure(Model(name="m", shape=shape, file_bytes=None), asked)
    parts = found.division
    request = found.cache.blocks(4096) * found.cache.block_bytes
    used = answer["bytes"] + parts.activations + parts.other + parts.graphs + request
    assert found.fits == (used + parts.reserve <= parts.budget * 1.001)
    if found.fits:
        assert used < 0.985 * parts.budget < 0.985 * 0.9 * mib * MIB


@pytest.mark.parametrize("name", models.NAMES)
def test_every_config_is_read_and_judged(name: str) -> None:
    """On eight H200s all of them run; some as an estimate, which is said."""
    shape = read(models.load(name))
    asked = Question(
        gpu="H200", total=143_771 * MIB, gpus=8, ranks=1, share=0.9, context=2048, concurrency=1,
        kv_dtype=None, quantization=None, seqs=None, batched_tokens=None,
    )  # fmt: skip
    model = Model(name=name, shape=shape, file_bytes=None)
    assert any(measure(model, replace(asked, ranks=ranks)).fits for ranks in (1, 2, 4, 8))
    assert (shape.rough is not None) == (name in ESTIMATES)


ESTIMATES = (
    "deepseek-v3.2", "gemma-3-27b", "llama-4-scout", "nemotron-h-56b", "qwen3-vl-8b",
    "qwen3.5-27b",
)  # fmt: skip


def test_a_models_quantisation_may_stand_in_a_file_beside_its_config() -> None:
    """ModelOpt: 70 GB of files, of a config that says bfloat16."""
    config = models.load("llama-3.1-70b-fp8")
    beside = models.load("llama-3.1-70b-fp8.hf_quant_config")
    shape = read(packing.merged(config, beside))
    assert weights.from_shape(read(config)).total > 1.9 * weights.from_shape(shape).total
    assert kvcache.of(shape, ranks=1, dtype=None, in_flight=0).bytes_per_token == 327_680 // 2
    assert packing.merged(config, None) == config


def test_layers_that_only_guess_ahead_are_not_loaded() -> None:
    """DeepSeek V3's files have a 62nd layer, 688.6 GB in all; vLLM loads 61."""
    shape = read(models.DEEPSEEK_V3)
    files = 688_586_727_753
    size = weights.from_files(shape, files)
    assert size.total < files - 11e9
    assert size.total > weights.from_shape(shape).total


def test_experts_of_four_bits_may_be_rounded_up() -> None:
    """gpt-oss on cards where Marlin runs it: 2,880 becomes 2,944 by 3,072."""
    shape = read(models.GPT_OSS_20B)
    experts = weights.count(shape).experts * 4.25 / 8
    assert weights.padding(shape, 1) == pytest.approx(0.0904 * experts, rel=0.01)
    assert weights.padding(shape, 8) * 8 == pytest.approx(0.1378 * experts, rel=0.01)
    assert weights.padding(read(models.MIXTRAL), 1) == 0


def test_an_encoder_for_pictures_is_room_kept_where_no_file_tells_its_size() -> None:
    shape = read(models.GEMMA3_27B)
    asked = Question(
        gpu="H100", total=81_559 * MIB, gpus=1, ranks=1, share=0.9, context=4096, concurrency=1,
        kv_dtype=None, quantization=None, seqs=None, batched_tokens=None,
    )  # fmt: skip
    alone = measure(Model(name="m", shape=shape, file_bytes=None), asked)
    files = measure(Model(name="m", shape=shape, file_bytes=54_864_813_280), asked)
    assert alone.fits
    assert files.fits
    assert alone.division.reserve - files.division.reserve > 1.9 * 2**30
    assert files.weights == 54_864_813_280
