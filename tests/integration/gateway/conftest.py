"""A scripted engine and the real gateway process in front of it, shared by a module's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.servers import GatewayProcess, wait_until, write_keys

Start = Callable[..., GatewayProcess]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def shared_fake() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture(scope="module")
def shared_gateway(shared_fake: FakeVLLM, keys: Path) -> Iterator[GatewayProcess]:
    """With time-outs short enough to be waited for."""
    gateway = GatewayProcess(
        keys,
        shared_fake.url,
        first_byte_timeout_s=1.5,
        idle_timeout_s=1,
        hold_s=1,
        max_body_bytes=1 << 21,
    )
    with gateway:
        gateway.wait_ready()
        yield gateway


@pytest.fixture
def fake(shared_fake: FakeVLLM) -> FakeVLLM:
    """The shared engine with an empty log and no script left over."""
    shared_fake.clear()
    return shared_fake


@pytest.fixture
def gateway(shared_gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """The shared gateway, idle and with an empty log; afterwards no trace is in it."""
    wait_until(lambda: shared_gateway.status()["gateway"]["in_flight"] == 0)
    shared_gateway.mark()
    yield shared_gateway
    assert "trace" not in shared_gateway.output


@pytest.fixture
def start(keys: Path) -> Iterator[Start]:
    """Start gateways of one's own: `start(upstreams, setting=value, …)`."""
    with ExitStack() as stack:

        def run(upstreams: str, keys_file: Path = keys, **settings: object) -> GatewayProcess:
            process = GatewayProcess(keys_file, upstreams, **settings)
            return stack.enter_context(process)

        yield run
