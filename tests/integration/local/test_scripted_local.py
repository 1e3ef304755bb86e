"""Local mode with a scripted program in vLLM's place: what `up` says of an engine that fails.

Supervisor, launcher, gateway and nginx are the real ones; only vLLM's own module is scripted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Checkout]:
    """A checkout whose engine says, as a worker does, that it captured no graph."""
    made = checkouts.make(tmp_path)
    layout = Layout(made.root)
    layout.venv.symlink_to(ROOT / ".venv")
    engine(layout, "refuses")
    tiny_model(layout.models / "tiny")
    env = {"PATH": os.environ["PATH"]}
    made.stack("init", env=env)
    made.set_env(STACK_MODE="local", NGINX_PORT=str(free_port()), MODEL=MODEL)
    yield made
    made.stack("down", env=env, timeout=60)


def test_a_refusal_for_want_of_graphs_comes_with_vllms_line_and_its_fix(refusing: Checkout) -> None:
    done = refusing.stack("up", env={"PATH": os.environ["PATH"]}, timeout=100)
    assert done.returncode == 1, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert "CUDA graphs: nothing was captured" in done.stderr
    # The launcher joins what the worker can't know: the line in which vLLM took the graphs away.
    assert "not compatible with compilation mode 0" in done.stderr
    assert "; fix: " in done.stderr
