"""Nothing of an outer stack's proof reaches these tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGINE_PROOF_DIR", raising=False)
    monkeypatch.delenv("ENGINE_REQUIRE_GRAPHS", raising=False)
