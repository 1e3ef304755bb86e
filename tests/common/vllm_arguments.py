"""Ask the real vLLM what it makes of lists of arguments (tests/engine/parse_with_vllm.py)."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from common.checkout import ROOT


def ask(engine_python: str, lists: list[list[str]]) -> dict[str, Any]:
    """What its parser makes of each list, its options, and its parsers of tools and reasoning."""
    done = subprocess.run(
        [engine_python, str(ROOT / "tests/engine/parse_with_vllm.py")],
        input=json.dumps(lists),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "VLLM_LOGGING_LEVEL": "ERROR",
             "VLLM_NO_USAGE_STATS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value
