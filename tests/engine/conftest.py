"""Where the real CPU engine is: $STACK_ENGINE_PYTHON, else local mode's own environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def engine_python() -> str:
    """Path of the Python that has vLLM; skips (or, where required, fails) without one."""
    named = os.environ.get("STACK_ENGINE_PYTHON", "").strip()
    python = Path(named) if named else ROOT / ".run/engine/bin/python"
    if python.is_file():
        return str(python)
    reason = f"no CPU engine at {python}; `make up` in local mode installs it"
    if os.environ.get("STACK_REQUIRE_ENGINE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
