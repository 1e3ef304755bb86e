"""vLLM finds the plugin by its dist-info folder, with nothing installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "docker/engine"
ASK = """
import importlib.metadata as m, json
groups = ("vllm.general_plugins", "vllm.stat_logger_plugins")
found = [(p.name, p.value, p.dist.version) for g in groups for p in m.entry_points(group=g)]
m.entry_points(group=groups[0])["graphproof"].load()()  # as vLLM does, without ENGINE_PROOF_DIR
import sys
print(json.dumps([found, sorted(n for n in sys.modules if n.startswith(("vllm", "prometheus")))]))
"""


@pytest.mark.parametrize("flags", [[], ["-P"], ["-I"]])
def test_both_entry_points_are_found(flags: list[str], tmp_path: Path) -> None:
    """-P: as the image runs it; -I stands for a PYTHONPATH that is not looked at."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", ASK],
        env={"PYTHONPATH": str(ENGINE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "-I" in flags:
        assert done.returncode != 0
        return
    found, imported = json.loads(done.stdout)
    assert found == [
        ["graphproof", "graphproof.plugin:register", "0.1.0"],
        ["graphproof", "graphproof.statlogger:GraphStatLogger", "0.1.0"],
    ]
    assert imported == []  # the API process pays for nothing


def test_the_image_and_local_mode_have_it() -> None:
    copied = (ENGINE / "Dockerfile").read_text()
    for folder in ("graphproof", "graphproof-0.1.0.dist-info"):
        assert f"COPY docker/engine/{folder} /opt/stack/{folder}\n" in copied
        assert (ENGINE / folder).is_dir()
