"""Each preset's arguments, as the launcher renders them, read by the real vLLM's own parser."""

from __future__ import annotations

from typing import Any

import pytest
from common import presets
from common.presets import Preset
from common.vllm_arguments import ask
from launcher.options import argv

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

PRESETS = presets.every()
BROKEN = ["--model", "m", "--tokenizer-mode"]  # an option without its value


@pytest.fixture(scope="module")
def answer(engine_python: str) -> dict[str, Any]:
    """One start of vLLM's parser (its imports take ten seconds) for all of them."""
    lists = [
        argv.arguments(preset.settings, "/models/m", preset.values["MODEL"]) for preset in PRESETS
    ]
    return ask(engine_python, [*lists, BROKEN])


@pytest.mark.parametrize("here", range(len(PRESETS)), ids=[preset.name for preset in PRESETS])
def test_vllm_reads_what_the_preset_means(answer: dict[str, Any], here: int) -> None:
    preset, result = PRESETS[here], answer["results"][here]
    assert "error" not in result
    assert {name: result[name] for name in _meant(preset)} == _meant(preset)


def _meant(preset: Preset) -> dict[str, object]:
    values = preset.values
    mistral = "--tokenizer-mode mistral" in values["VLLM_EXTRA_ARGS"]
    return {
        "served_model_name": [values["MODEL"], "default"],
        "tensor_parallel_size": int(values["TENSOR_PARALLEL_SIZE"]),
        "max_model_len": int(values["MAX_MODEL_LEN"]),
        "kv_cache_dtype": values["KV_CACHE_DTYPE"] or "auto",
        "quantization": values["QUANTIZATION"] or None,
        "tool_call_parser": values["TOOL_CALL_PARSER"] or None,
        "enable_auto_tool_choice": bool(values["TOOL_CALL_PARSER"]),
        "reasoning_parser": values["REASONING_PARSER"],
        "tokenizer_mode": "mistral" if mistral else "auto",
    }


@pytest.mark.parametrize("here", range(len(PRESETS)), ids=[preset.name for preset in PRESETS])
def test_vllm_has_the_parsers_it_names(answer: dict[str, Any], here: int) -> None:
    """vLLM takes any name at first, and fails on a wrong one when it has loaded the model."""
    values = PRESETS[here].values
    assert values["TOOL_CALL_PARSER"] in {"", *answer["tools"]}
    assert values["REASONING_PARSER"] in {"", *answer["reasoning"]}


def test_vllm_refuses_what_it_cannot_read(answer: dict[str, Any]) -> None:
    assert "error" in answer["results"][-1]
