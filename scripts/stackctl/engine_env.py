"""`.run/engine`: vLLM's CPU build from PyPI with everything it needs, for local mode.

torch's `+cpu` build is not on PyPI: it comes from wherever pip is configured to find it, else from
PyTorch's own index (TORCH_CPU_INDEX). The rest is locked with hashes.
"""

from stackctl import process, venv
from stackctl.config import DEFAULT_TORCH_INDEX, Config
from stackctl.console import Console
from stackctl.errors import StackError
from stackctl.layout import Layout

TORCH = "torch==2.13.0+cpu"
EMBEDDED = "smollm2-135m-instruct"  # launcher.model.embedded.FOLDER_NAME


def ensure_model(layout: Layout, console: Console) -> None:
    """Make the embedded model, whatever MODEL says: the tests and the first `up` want it."""
    dest = layout.models / EMBEDDED
    layout.models.mkdir(parents=True, exist_ok=True)
    done = process.follow(
        [layout.engine_python, "-P", "-m", "launcher.model.embedded", dest],
        console.progress,
        env=process.clean_env({"PYTHONPATH": str(layout.launcher_parent)}),
    )
    if done.rc != 0:
        raise StackError(done.last_line, done.rc)


def ensure(layout: Layout, config: Config, console: Console) -> None:
    """Make the engine's environment unless it is current. Raises StackError."""
    stamp = venv.fingerprint(layout.engine_lock, TORCH)
    if venv.is_current(layout.engine, stamp):
        return
    layout.run.mkdir(exist_ok=True)
    console.line("  engine: first run installs vLLM's CPU build (about 1 GB to download)")
    torch = ("--no-deps", TORCH)
    index = config.get("TORCH_CPU_INDEX", DEFAULT_TORCH_INDEX)
    lock = layout.engine_lock
    steps = [
        venv.Step("engine: torch", torch, 1, (*torch, "--index-url", index)),
        venv.Step(
            "engine: vLLM",
            ("--no-deps", "--require-hashes", "-r", str(lock)),
            venv.count(lock),
        ),
    ]
    venv.make(layout.engine, stamp, steps, console, layout.logs / "setup-engine.log")
    console.line("  engine: installed")
