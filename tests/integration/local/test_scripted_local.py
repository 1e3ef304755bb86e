"""Local mode with a scripted program in vLLM's place: what `up` says of an engine that fails.

Supervisor, launcher, gateway and nginx are the real ones; only vLLM's own module is scripted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common.checkout import Checkout
from common.scripted_stack import PATH, scripted, status

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Checkout]:
    """Its engine says, as a worker does, that it captured no graph."""
    made = scripted(tmp_path, "refuses")
    yield made
    made.stack("down", env=PATH, timeout=60)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = scripted(tmp_path_factory.mktemp("serving"), "serves")
    done = made.stack("up", env=PATH, timeout=100)
    assert done.returncode == 0, done.stderr
    yield made
    made.stack("down", env=PATH, timeout=60)


def test_drained_by_name_and_let_in_again(serving: Checkout) -> None:
    done = serving.stack("drain", "vllm", env=PATH)
    assert done.returncode == 0, done.stderr
    assert "vllm is the only engine: requests wait now" in done.stdout
    assert "vllm takes no more requests and runs none" in done.stdout
    told = status(serving)
    assert (told["phase"], told["ready"]) == ("draining", False)
    assert serving.stack("drain", env=PATH).returncode == 0  # drained already
    done = serving.stack("resume", "vllm", env=PATH)
    assert done.returncode == 0, done.stderr
    assert status(serving)["phase"] == "ready"


def test_up_lets_a_drained_engine_in_again(serving: Checkout) -> None:
    assert serving.stack("drain", env=PATH).returncode == 0
    done = serving.stack("up", env=PATH, timeout=60)
    assert done.returncode == 0, done.stderr
    assert status(serving)["phase"] == "ready"


@pytest.mark.parametrize("verb", ["drain", "resume"])
def test_an_engine_that_is_not_there(serving: Checkout, verb: str) -> None:
    done = serving.stack(verb, "vllm-9", env=PATH)
    assert done.returncode == 2
    assert done.stderr.strip() == "stack: found engine 'vllm-9'; wanted one of vllm; fix: name one"


def test_a_drain_without_a_stack(refusing: Checkout) -> None:
    done = refusing.stack("drain", env=PATH)
    assert done.returncode == 1
    assert "found vllm not running; wanted a running engine; fix: make up" in done.stderr


def test_a_refusal_for_want_of_graphs_comes_with_vllms_line_and_its_fix(refusing: Checkout) -> None:
    done = refusing.stack("up", env=PATH, timeout=100)
    assert done.returncode == 1, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert "CUDA graphs: nothing was captured" in done.stderr
    # The launcher joins what the worker can't know: the line in which vLLM took the graphs away.
    assert "not compatible with compilation mode 0" in done.stderr
    assert "; fix: " in done.stderr
