"""Local mode with a scripted program in vLLM's place: what `up` says of an engine that fails.

Supervisor, launcher, gateway and nginx are the real ones; only vLLM's own module is scripted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from common import checkout as checkouts
from common.checkout import ROOT, Checkout
from common.net import free_port
from stackctl import engine_env, venv
from stackctl.layout import Layout
from unit.launcher import scripted_vllm

pytestmark = pytest.mark.timeout(120)
MODEL = "/models/tiny"


def engine(layout: Layout, script: str) -> None:
    """`.run/engine` as local mode expects it: complete, with the scripted vLLM in it."""
    site = layout.run / "site"
    scripted_vllm.install(site)
    (layout.engine / "bin").mkdir(parents=True)
    settings = {"SCRIPT": script, "PIDS": str(layout.run / "pids")}
    exports = "".join(f"export {name}='{value}'\n" for name, value in settings.items())
    path = f'export PYTHONPATH="{site}:$PYTHONPATH"\n'
    layout.engine_python.write_text(f'#!/bin/sh\n{exports}{path}exec "{sys.executable}" "$@"\n')
    layout.engine_python.chmod(0o755)
    stamp = venv.fingerprint(layout.engine_lock, engine_env.TORCH)
    (layout.engine / venv.STAMP).write_text(f"{stamp}\n")


def tiny_model(folder: Path) -> None:
    """Enough for a model's folder: nobody loads it."""
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")


PATH = {"PATH": os.environ["PATH"]}


def scripted(folder: Path, script: str) -> Checkout:
    """A checkout whose engine does what `script` says."""
    made = checkouts.make(folder)
    layout = Layout(made.root)
    layout.venv.symlink_to(ROOT / ".venv")
    engine(layout, script)
    tiny_model(layout.models / "tiny")
    made.stack("init", env=PATH)
    made.set_env(STACK_MODE="local", NGINX_PORT=str(free_port()), MODEL=MODEL)
    return made


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


def status(made: Checkout) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(made.stack("status", "--json", env=PATH).stdout)
    return told


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
