"""Does the model fit? Asked of docker/engine/fit, a program of its own: as the verb `fit`, and by
`up` before it builds or downloads anything."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stackctl import mode, names, process, programs
from stackctl.config import Config
from stackctl.console import Console
from stackctl.doctor.checks import Check, of_line
from stackctl.doctor.facts import Host, read_engine, read_gpus
from stackctl.errors import StackError
from stackctl.layout import Layout
from stackctl.mode import Mode

FITS, DOES_NOT, BAD_INPUT = 0, 1, 2  # 3: it cannot be told, for want of a network
# The hub has 10 seconds of its own there; the rest is for an nvidia-smi that wakes GPUs up.
WAIT_S = 20.0
ABOUT_THE_MODEL = "MODEL:"  # how its lines begin that the download would fail with, too


def show(layout: Layout, config: Config, words: Sequence[str]) -> int:
    """The verb: its output and exit status are the program's."""
    words = [_here(layout, word) for word in words]
    env = _environment(layout, config, _mode(layout, config))
    return process.attached([*PROGRAM, *words], env=env, cwd=layout.root)


def _mode(layout: Layout, config: Config) -> Mode:
    """Of the last `up`, else what one would take; on a host that could start none, a GPU's."""
    recorded = mode.recorded(layout.mode_file)
    try:
        return recorded or mode.decide(config.get("STACK_MODE"), read_engine(), read_gpus())
    except StackError:
        return "gpu"


PROGRAM = (sys.executable, "-P", "-m", "fit")


def _here(layout: Layout, word: str) -> str:
    """A folder of the containers, where this host has it."""
    own = layout.models / word.removeprefix("/models/")
    return str(own) if word.startswith("/models/") and not Path(word).exists() else word


def _environment(layout: Layout, config: Config, chosen: Mode) -> dict[str, str]:
    return {
        **programs.shell_env(config),
        **config.subset((*names.LAUNCHER, "HF_ENDPOINT")),
        "PYTHONPATH": str(layout.launcher_parent),
        "ENGINE_DEVICE": "cuda" if chosen == "gpu" else "cpu",
        "HF_TOKEN_PATH": str(layout.hf_token),
    }


def check(layout: Layout, config: Config, chosen: Mode) -> list[Check]:
    """For `doctor`: the model of .env, with its hub asked. `auto` is a model of the hub on a GPU,
    and in the image or installed here otherwise."""
    env = _environment(layout, config, chosen)
    model = config.get("MODEL", "auto")
    if model == "auto":
        model = _automatic(layout, env) if chosen == "gpu" else ""
    if not model:
        return []
    words = (_here(layout, model), "--json")
    done = process.run([*PROGRAM, *words], env=env, cwd=layout.root, timeout=WAIT_S)
    told = _parse(done.out) if done.rc in {FITS, DOES_NOT} else {}
    if told and chosen == "gpu" and not told.get("gpu"):
        line = "MODEL: found no GPU whose memory is told; wanted one; fix: make fit A=--gpu"
        return [of_line("model", line, "warn")]
    if told.get("fits"):
        return [Check("model", "ok", f"{model} fits: {told.get('reason')}")]
    line = f"{told.get('reason')}{_elsewhere(told)}" if told else done.last_line
    return [of_line("model", line, "warn" if done.rc not in {DOES_NOT, BAD_INPUT} else "fail")]


def _automatic(layout: Layout, env: Mapping[str, str]) -> str:
    """The hub's id of what MODEL=auto takes here; empty where no GPU is seen, which is judged
    elsewhere."""
    command = [sys.executable, "-P", "-m", "launcher.model.auto"]
    done = process.run(command, env=env, cwd=layout.root)
    return done.out.strip() if done.rc == 0 else ""


class Question:
    """What `up` asks of the model in .env, and what was answered before."""

    def __init__(self, layout: Layout, config: Config, chosen: Mode, host: Host) -> None:
        self._layout = layout
        self._model = config.get("MODEL", "auto")
        self._env = _environment(layout, config, chosen)
        if chosen != "gpu":  # a GPU that the mode leaves alone is not to be judged
            self._env["PATH"] = "/nonexistent"
        self._gpu = chosen == "gpu"
        self._fresh = mode.proven(layout.mode_file) != chosen
        asked = config.subset(names.LAUNCHER), chosen, host.gpus.names, host.memory
        self._digest = hashlib.sha256(repr(asked).encode()).hexdigest()

    def ask(self, console: Console) -> None:
        """Raises StackError when the model does not fit; goes on when that cannot be told. `auto`
        is chosen to fit, and what fitted before is not asked again: that needs the hub."""
        if self._model == "auto" or self._is_known():
            return
        words = (_here(self._layout, self._model), "--json")
        done = process.run([*PROGRAM, *words], env=self._env, cwd=self._layout.root, timeout=WAIT_S)
        told = _parse(done.out) if done.rc in {FITS, DOES_NOT} else {}
        if not told or (self._gpu and not told.get("gpu")):
            self._untold(done, console)
        elif told["fits"]:
            console.line(f"  fits: {told.get('reason')}")
            self.remember()
        else:
            raise StackError(f"{told.get('reason')}{_elsewhere(told)}")

    def _untold(self, done: process.Result, console: Console) -> None:
        """A name that the hub does not know, or a gated one, ends a first start at once; later,
        the model may be here already."""
        about = done.rc == BAD_INPUT and done.last_line.startswith(ABOUT_THE_MODEL)
        if self._fresh and about:
            raise StackError(done.last_line)
        console.line(f"  note: whether the model fits is not known: {done.last_line[:300]}")

    def _is_known(self) -> bool:
        try:
            return self._layout.fitted.read_text(encoding="ascii").strip() == self._digest
        except (OSError, UnicodeDecodeError):
            return False

    def remember(self) -> None:
        """For the same question, once it was answered or the engine was ready."""
        self._layout.fitted.write_text(f"{self._digest}\n", encoding="ascii")


def _parse(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "fits" in found else {}


def _elsewhere(told: Mapping[str, object]) -> str:
    """The cheapest plan that would do."""
    plans = told.get("plans")
    first = plans[0] if isinstance(plans, list) and plans else None
    if not isinstance(first, dict):
        return ""
    return (
        f"; it fits {first.get('slug')} ({first.get('usd_per_hour')} USD/h) with"
        f" TENSOR_PARALLEL_SIZE={first.get('tensor_parallel_size')}"
    )
