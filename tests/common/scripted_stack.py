"""A local stack with a scripted program in vLLM's place: a swap takes seconds, not minutes.

Supervisor, launcher, gateway and nginx are the real ones; only vLLM's own module is scripted
(unit/launcher/scripted_vllm.py). A file `script` in a model's folder says what its engine does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from stackctl import engine_env, venv
from stackctl.layout import Layout
from unit.launcher import scripted_vllm

from common import checkout as checkouts
from common.checkout import ROOT, Checkout
from common.net import free_port

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


def tiny_model(folder: Path, script: str = "") -> None:
    """Enough for a model's folder: nobody loads it."""
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    if script:
        (folder / "script").write_text(script)


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


def status(made: Checkout) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(made.stack("status", "--json", env=PATH).stdout)
    return told
