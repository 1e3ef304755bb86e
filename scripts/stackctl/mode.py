"""Which of the three modes runs: a pure decision from what the host has, and its record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stackctl.errors import USAGE, StackError, problem

Mode = Literal["gpu", "cpu", "local"]
EngineState = Literal["ok", "absent", "refused"]
MODES: tuple[Mode, ...] = ("gpu", "cpu", "local")
CHOICES = ("auto", *MODES)
STARTING = " (starting)"
BOOTSTRAP = (
    "curl -fsSL https://get.docker.com | sh && nvidia-ctk runtime configure --runtime=docker"
    " && systemctl restart docker"
)


@dataclass(frozen=True)
class Engine:
    """The Docker engine as its client sees it. `detail` is the client's own last line."""

    state: EngineState
    detail: str = ""
    version: str = ""


@dataclass(frozen=True)
class Gpus:
    """GPUs as nvidia-smi counts them; `error` is its reason when it is there but fails. The number
    of NVIDIA GPUs on the PCI bus is `driverless` when there is no nvidia-smi, and `unseen` when it
    lists none."""

    names: tuple[str, ...] = ()
    error: str = ""
    driverless: int = 0
    unseen: int = 0


def recorded(path: Path) -> Mode | None:
    """The mode the last `up` wrote down, whether or not it became ready."""
    word = _record(path).removesuffix(STARTING)
    return next((mode for mode in MODES if mode == word), None)


def proven(path: Path) -> Mode | None:
    """The recorded mode when an `up` in it has been ready: all it needs is on this host."""
    return None if _record(path).endswith(STARTING) else recorded(path)


def record(path: Path, mode: Mode, *, ready: bool) -> None:
    """Write down the mode. What was ready once stays so until another mode starts."""
    if ready or proven(path) != mode:
        path.write_text(f"{mode}{'' if ready else STARTING}\n", encoding="ascii")


def _record(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def decide(wanted: str, engine: Engine, gpus: Gpus) -> Mode:
    """The mode for STACK_MODE=`wanted`. Raises StackError instead of falling back silently."""
    choice = wanted or "auto"
    if choice not in CHOICES:
        fix = f"STACK_MODE={CHOICES[0]} in .env"
        raise problem(f"STACK_MODE={wanted}", "auto, gpu, cpu or local", fix, USAGE)
    if choice == "local":
        return "local"
    if engine.state == "refused":
        _with_engine("cpu", engine)
    if choice == "gpu":
        _demand_gpu(gpus)
        return _with_engine("gpu", engine)
    if choice == "cpu":
        return _with_engine("cpu", engine)
    return _automatic(engine, gpus)


def intended(wanted: str, engine: Engine, gpus: Gpus) -> Mode:
    """As `decide`, also where that refuses for what the host lacks: the mode to be examined.
    Raises StackError for a STACK_MODE that there is not."""
    try:
        return decide(wanted, engine, gpus)
    except StackError as error:
        if error.code == USAGE:
            raise
    chosen = next((mode for mode in MODES if mode == wanted), None)
    return chosen or ("gpu" if gpus.names or gpus.error or gpus.driverless else "cpu")


def _automatic(engine: Engine, gpus: Gpus) -> Mode:
    if gpus.error or gpus.driverless:
        _demand_gpu(gpus)
    if gpus.names:
        return _with_engine("gpu", engine)
    return "cpu" if engine.state == "ok" else "local"


def _demand_gpu(gpus: Gpus) -> None:
    refusal = gpu_problem(gpus)
    if refusal:
        raise refusal


def gpu_problem(gpus: Gpus) -> StackError | None:
    """Why no GPU of this host can be used."""
    if gpus.names:
        return None
    if gpus.error:
        fix = f"{_driver_fix(gpus.error)} (or STACK_MODE=cpu or local, which use no GPU)"
        return problem(f"nvidia-smi that fails: {gpus.error}", "a working NVIDIA driver", fix)
    if gpus.driverless:
        return problem(
            f"{gpus.driverless} NVIDIA GPU on the PCI bus and no nvidia-smi",
            "the NVIDIA driver",
            "install it (Ubuntu: sudo ubuntu-drivers install, then reboot), or STACK_MODE=cpu or"
            " local, which use no GPU",
        )
    if gpus.unseen:
        return problem(
            f"{gpus.unseen} NVIDIA GPU on the PCI bus and none in nvidia-smi",
            "a driver that knows it",
            "reboot; if it stays, install the driver's open kernel modules, which newer GPUs need"
            " (Ubuntu: apt install nvidia-driver-580-server-open)",
        )
    return problem(
        "STACK_MODE=gpu and no NVIDIA GPU (nvidia-smi lists none)",
        "a GPU with its driver",
        "install the driver, or STACK_MODE=auto",
    )


def _driver_fix(error: str) -> str:
    if "version mismatch" in error:
        return "reboot: the driver was updated while it was loaded"
    if "permission" in error.lower():
        return "run as a user who may open /dev/nvidia*"
    return "reboot or reinstall the driver"


def _with_engine(mode: Mode, engine: Engine) -> Mode:
    refusal = engine_problem(mode, engine)
    if refusal:
        raise refusal
    return mode


def engine_problem(mode: Mode, engine: Engine) -> StackError | None:
    """Why Docker cannot be used for `mode`, which needs it."""
    if engine.state == "ok":
        return None
    if engine.state == "refused":
        return problem(
            "a Docker engine whose socket refuses this user",
            "access to it",
            "sudo usermod -aG docker $USER, then log in again (or STACK_MODE=local)",
        )
    if mode == "gpu":
        return problem(
            f"a GPU but no usable Docker engine ({engine.detail})",
            "Docker Engine with the NVIDIA container toolkit",
            f"{BOOTSTRAP} (or STACK_MODE=local: CPU only)",
        )
    return problem(
        f"STACK_MODE=cpu but no usable Docker engine ({engine.detail})",
        "a running one",
        "curl -fsSL https://get.docker.com | sh (or STACK_MODE=local)",
    )
