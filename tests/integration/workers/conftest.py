"""A real Valkey, and gateways of several workers before a scripted engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.servers import GatewayProcess, write_keys
from common.valkey import ValkeyProcess

Start = Callable[..., GatewayProcess]


@pytest.fixture
def valkey() -> Iterator[ValkeyProcess]:
    with ValkeyProcess() as process:
        yield process


@pytest.fixture
def fake() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture
def start(tmp_path: Path, fake: FakeVLLM, valkey: ValkeyProcess) -> Iterator[Start]:
    """Start a gateway: `start(keys=text of the key file, setting=value, …)`; two workers."""
    with ExitStack() as stack:

        def run(keys: str | None = None, **settings: object) -> GatewayProcess:
            given = {"workers": 2, "valkey_url": valkey.url, **settings}
            process = GatewayProcess(write_keys(tmp_path, keys), fake.url, **given)
            stack.enter_context(process)
            process.wait_ready()
            return process

        yield run
