"""The presets (compose/models/NAME.env): what each sets and says, and the plans that fit it, as
`fit` tells from the model's config in tests/data/models."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fit import answer, packing, plans
from fit.asked import question
from fit.gpus import MIB, Gpu
from fit.judge import Fit, Model, Question, measure
from fit.plans import Plan, Table
from fit.shape import read as read_shape
from launcher.options.settings import Settings, load
from stackctl import envfile

from common.checkout import ROOT

FOLDER = ROOT / "compose/models"
CONFIGS = ROOT / "tests/data/models"
# The config that a preset's plans are told from, where it has another name: of the same sizes.
SAME_SIZES = {
    "llama-3.3-70b": "llama-3.1-70b",
    "qwen2.5-coder-32b": "qwen2.5-32b",
    "deepseek-r1-distill-qwen-32b": "qwen2.5-32b",
}
FITS = re.compile(r"^# Fits.*\n(?:#   .*\n)*", re.MULTILINE)


@dataclass(frozen=True)
class Preset:
    """One file. `values`: as Compose reads it; `head`: its comments without the marks."""

    name: str
    path: Path
    text: str
    values: Mapping[str, str]
    head: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        """As the launcher reads it on a GPU. Raises SettingsError."""
        return load(self.values)

    def said(self, label: str) -> str:
        """What follows `label:` in the head, up to the next line that has a label; without its
        full stop."""
        text = "\n".join(self.head)
        found = re.search(rf"^{label}: (.+?)$(?=\n[A-Z]|\Z)", text, re.MULTILINE | re.DOTALL)
        return found[1].replace("\n", " ").removesuffix(".") if found else ""


@dataclass(frozen=True)
class Row:
    """A plan that a preset fits, with how many requests of its whole context at once."""

    plan: Plan
    fit: Fit


def every() -> list[Preset]:
    return [read(path) for path in sorted(FOLDER.glob("*.env"))]


def read(path: Path) -> Preset:
    text = path.read_text(encoding="utf-8")
    values = envfile.parse(text, lambda _: None)
    head = tuple(line[2:] for line in text.splitlines() if line.startswith("# "))
    return Preset(path.stem, path, text, values, head)


def model(preset: Preset) -> Model:
    """The model as `fit` sees it, sizes computed from its config."""
    stem = SAME_SIZES.get(preset.name, preset.name)
    config = json.loads((CONFIGS / f"{stem}.json").read_text(encoding="utf-8"))
    beside = CONFIGS / f"{stem}.hf_quant_config.json"
    if beside.is_file():
        config = packing.merged(config, json.loads(beside.read_text(encoding="utf-8")))
    return Model(name=preset.values["MODEL"], shape=read_shape(config), file_bytes=None)


def asked(preset: Preset, plan: Plan) -> Question:
    return question(preset.settings, Gpu(plan.gpu, plan.gpu_mib * MIB, plan.gpus))


def rows(preset: Preset, table: Table) -> list[Row]:
    """The plans that fit the preset as it is set, cheapest first."""
    judged = model(preset)
    found = [Row(plan, measure(judged, asked(preset, plan))) for plan in table.plans]
    return [row for row in found if row.fit.fits]


def cheapest(preset: Preset, table: Table) -> str:
    """The cheapest plan for this model and context, with however many of its GPUs."""
    best = answer.plans_that_do(model(preset), asked(preset, table.plans[0]), table)
    return str(best[0]["slug"])


def fits_lines(preset: Preset, table: Table) -> str:
    """The lines of the head that name the plans."""
    found = rows(preset, table)
    context = int(preset.values["MAX_MODEL_LEN"])
    rough = " (an estimate)" if model(preset).shape.rough else ""
    lines = [f"# Fits{rough}, with this many requests of {context:,} tokens at once:"]
    lines += [f"#   {row.plan.slug}: {row.fit.max_concurrency}" for row in found]
    return "\n".join(lines) + "\n"


def with_fits(preset: Preset, table: Table) -> str:
    """The file's text with those lines as they should be."""
    return FITS.sub(fits_lines(preset, table), preset.text, count=1)


def docs_table() -> str:
    """The table of docs/models.md."""
    table = plans.load()
    head = (
        "| preset | `MODEL` | GPUs | context | tools | reasoning | licence | token"
        " | smallest plan | also fits |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(_docs_row(preset, table) for preset in every())


def _docs_row(preset: Preset, table: Table) -> str:
    values, found = preset.values, [row.plan for row in rows(preset, table)]
    first = found[0]
    cells = (
        f"`{preset.name}`",
        f"`{values['MODEL']}`",
        values["TENSOR_PARALLEL_SIZE"],
        f"{int(values['MAX_MODEL_LEN']):,}",
        values["TOOL_CALL_PARSER"] or "none",
        values["REASONING_PARSER"] or "none",
        preset.said("Licence"),
        preset.said("Gated").partition(":")[0],
        f"`{first.slug}`, {first.usd_per_hour:.2f} USD/h",
        ", ".join(f"`{plan.slug}`" for plan in found[1:]),
    )
    return "| " + " | ".join(cells) + " |\n"
