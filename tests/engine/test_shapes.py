"""The arithmetic of `fit` against the real vLLM, which builds the same models without weights."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fit import packing
from unit.fit import models
from unit.fit.vllm_says import holds

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

# One of each kind: groups of windows and of full attention, windows only, latent attention,
# experts; and what ranks divide, repeat or keep whole.
ASKED = (
    ("smollm2-135m", 3), ("qwen2.5-7b-awq", 1), ("gemma-2-9b", 8), ("gemma-3-27b-text", 1),
    ("phi-3-mini-4k", 1), ("llama-3.1-8b", 16), ("deepseek-v2-lite", 2), ("gpt-oss-20b-plain", 2),
)  # fmt: skip


def test_vllm_makes_the_same_of_them(engine_python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [engine_python, str(Path(__file__).with_name("shapes_with_vllm.py"))],
        input=json.dumps([_folder(tmp_path, name, ranks) for name, ranks in ASKED]),
        capture_output=True, text=True, timeout=220, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "VLLM_LOGGING_LEVEL": "ERROR",
             "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(answer["model"], answer["ranks"]) for answer in answers] == list(ASKED)
    for answer in answers:
        holds(answer, models.load(answer["model"]))


def _folder(root: Path, name: str, ranks: int) -> dict[str, Any]:
    folder = root / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(models.load(name)))
    return {"model": name, "folder": str(folder), "ranks": ranks}


def test_what_is_made_while_loading_is_vllms_own_list(engine_python: str, tmp_path: Path) -> None:
    """Names that --quantization takes for 16-bit weights, and those that leave linear layers be."""
    script = (
        "import json; from vllm.config import quantization as q;"
        "print(json.dumps({name: args.linear is not None"
        " for name, args in q._ONLINE_SHORTHANDS.items()}))"
    )
    done = subprocess.run(
        [engine_python, "-c", script], capture_output=True, text=True, timeout=120, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "VLLM_LOGGING_LEVEL": "ERROR"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    linear = json.loads(done.stdout.splitlines()[-1])
    assert {*linear, "fp8"} == set(packing.AT_LOAD)
    alone = {name for name, packs in linear.items() if not packs}
    assert alone <= set(packing.EXPERTS_ALONE)
