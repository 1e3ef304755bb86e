"""An engine and the gateway as an operator runs it, one of each a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.servers import PlainGateway, write_keys


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path)


@pytest.fixture
def engine() -> Iterator[FakeVLLM]:
    with FakeVLLM() as engine:
        yield engine


@pytest.fixture
def gateway(engine: FakeVLLM, keys: Path) -> Iterator[PlainGateway]:
    """With room for every stream of these tests at once."""
    with PlainGateway(keys, engine.url, max_concurrency=600) as gateway:
        gateway.wait_ready()
        yield gateway
