"""One fake gateway and one real nginx a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.front import Front


@pytest.fixture
def fake() -> Iterator[FakeVLLM]:
    """The scripted upstream in the gateway's place."""
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture
def front(tmp_path: Path, fake: FakeVLLM) -> Iterator[Front]:
    """nginx with the shipped templates before `fake`."""
    with Front(tmp_path, f"127.0.0.1:{fake.port}") as front:
        yield front
