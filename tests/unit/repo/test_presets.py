"""Each preset (compose/models): only settings of its model, read by the launcher, with the plans
that really fit; the table of docs/models.md has them all."""

from __future__ import annotations

import json
import re

import pytest
from common import presets
from common.checkout import ROOT
from common.presets import Preset
from fit import plans
from launcher.options import argv
from stackctl import envfile, names, swapplan
from stackctl.layout import Layout

# What belongs to a model. All of it in each preset, so that nothing of the model before is left.
NAMES = [
    "MODEL", "MODEL_REVISION", "TENSOR_PARALLEL_SIZE", "MAX_MODEL_LEN", "KV_CACHE_DTYPE",
    "QUANTIZATION", "TOOL_CALL_PARSER", "REASONING_PARSER", "COMPILATION_CONFIG", "VLLM_EXTRA_ARGS",
]  # fmt: skip
PRESETS = presets.every()
TABLE = plans.load()
PARSERS = json.loads((ROOT / "tests/data/vllm_parsers.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/models.md").read_text(encoding="utf-8")
RERUN = "run .venv/bin/python tests/tools/preset_plans.py"

each = pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)


def test_there_are_presets_for_each_size_of_plan() -> None:
    assert len(PRESETS) >= 16
    smallest = {presets.cheapest(preset, TABLE) for preset in PRESETS}
    assert len(smallest) >= 5


@each
def test_it_sets_all_that_belongs_to_a_model_and_nothing_else(preset: Preset) -> None:
    assert list(preset.values) == NAMES
    assert set(NAMES) <= set(names.LAUNCHER)
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert all(re.search(rf"^#? ?{name}=", example, re.MULTILINE) for name in NAMES)


@each
def test_its_lines_are_plain_enough_for_any_reader(preset: Preset) -> None:
    """NAME=value or NAME='options': no expansion, no escape, no word that a shell would split."""
    rest = [line for line in preset.text.splitlines() if line and not line.startswith("#")]
    assert len(rest) == len(NAMES)
    assert all(re.fullmatch(r"[A-Z_]+=([\w./:-]*|'[^'$\\]+')", line) for line in rest)
    assert preset.text.isascii()
    assert max(len(line) for line in preset.text.splitlines()) <= 100
    shell = dict.fromkeys(NAMES, "of the shell")
    assert envfile.parse(preset.text, shell.get) == preset.values


@each
def test_a_swap_to_it_leaves_nothing_of_the_model_before(preset: Preset) -> None:
    assert set(swapplan.OF_THE_MODEL) < set(NAMES)
    old = dict.fromkeys(NAMES, "7") | {"SERVED_MODEL_NAME": "mine", "MAX_NUM_SEQS": "9"}
    before = "".join(f"{name}={value}\n" for name, value in old.items())
    wanted = swapplan.Wanted(model=None, preset=preset.name)
    new = swapplan.changes(wanted, swapplan.preset(Layout(ROOT), preset.name))
    after = envfile.parse(swapplan.edited(before, new), lambda _: None)
    assert after == {**preset.values, "SERVED_MODEL_NAME": "mine", "MAX_NUM_SEQS": "9"}


@each
def test_the_launcher_reads_it_and_renders_what_it_says(preset: Preset) -> None:
    values, settings = preset.values, preset.settings
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", settings.model)
    words = argv.arguments(settings, "/models/m", settings.model)
    flags = {
        "--max-model-len": "MAX_MODEL_LEN",
        "--tensor-parallel-size": "TENSOR_PARALLEL_SIZE",
        "--kv-cache-dtype": "KV_CACHE_DTYPE",
        "--quantization": "QUANTIZATION",
        "--tool-call-parser": "TOOL_CALL_PARSER",
        "--reasoning-parser": "REASONING_PARSER",
    }
    told = {flag: words[words.index(flag) + 1] for flag in flags if flag in words}
    assert told == {flag: values[name] for flag, name in flags.items() if values[name]}
    assert set(settings.extra_args) <= set(words)


@each
def test_its_parsers_are_vllms(preset: Preset) -> None:
    assert preset.values["TOOL_CALL_PARSER"] in {"", *PARSERS["tools"]}
    assert preset.values["REASONING_PARSER"] in {"", *PARSERS["reasoning"]}


@each
def test_its_head_tells_licence_token_parsers_and_version(preset: Preset) -> None:
    assert preset.said("Licence")
    assert re.fullmatch(r"no|(yes|perhaps): .+secrets/hf_token", preset.said("Gated"))
    text = " ".join(preset.head)
    for name in ("TOOL_CALL_PARSER", "REASONING_PARSER"):
        assert preset.values[name] in text
    assert preset.values["TOOL_CALL_PARSER"] or re.search("(Tools.*|embeds.*): none", text)
    assert f"Flags checked with vLLM {PARSERS['vllm']}." in preset.head


def test_the_version_checked_is_the_one_that_runs() -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert f"Default: empty: vllm/vllm-openai:v{PARSERS['vllm']}," in example


@each
def test_the_plans_in_its_head_are_those_that_fit(preset: Preset) -> None:
    assert preset.text == presets.with_fits(preset, TABLE), RERUN
    stated = re.findall(r"^#   ([\w-]+): ([1-9]\d*)$", preset.text, re.MULTILINE)
    fits = [(row.plan.slug, str(row.fit.max_concurrency)) for row in presets.rows(preset, TABLE)]
    assert stated == fits


@each
def test_its_smallest_plan_is_the_smallest(preset: Preset) -> None:
    """No cheaper plan holds it, with any number of its GPUs."""
    found = presets.rows(preset, TABLE)
    assert found[0].plan.slug == presets.cheapest(preset, TABLE)
    prices = [row.plan.usd_per_hour for row in found]
    assert prices == sorted(prices)
    assert preset.settings.tensor_parallel_size <= found[0].plan.gpus


def test_a_preset_that_states_a_plan_too_small_is_found_out() -> None:
    """The check above can fail: twice the context does not fit the smallest plan any more."""
    tight = next(preset for preset in PRESETS if preset.name == "qwen3-32b-fp8")
    larger = dict(tight.values) | {"MAX_MODEL_LEN": "40960"}
    other = Preset(tight.name, tight.path, tight.text, larger, tight.head)
    assert presets.with_fits(other, TABLE) != tight.text
    slugs = [row.plan.slug for row in presets.rows(other, TABLE)]
    assert "gpu-l40sx1-48gb" not in slugs
    assert "gpu-h100x1-80gb" in slugs


def test_the_page_has_the_table_of_the_files() -> None:
    start = PAGE.index("| preset |")
    assert PAGE[start : PAGE.index("\n\n", start) + 1] == presets.docs_table(), RERUN
    named = re.findall(r"`([A-Z_]+)`", PAGE.partition("stays behind:")[2].partition(". ")[0])
    assert named == NAMES
