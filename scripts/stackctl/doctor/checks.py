"""Judges of the host: pure functions from facts to a verdict with found, wanted and fix."""

import re
from dataclasses import asdict, dataclass
from typing import Literal

from stackctl.doctor.facts import Host, Listener
from stackctl.mode import Gpus, Mode, engine_problem, gpu_problem

Status = Literal["ok", "warn", "fail"]
GIB = 1 << 30
# !reset (compose/cpu.yml needs it) came with 2.24.4; depends_on.restart and string counts before.
COMPOSE_MINIMUM = (2, 24, 4)
ENGINE_MINIMUM = (20, 10)
LOCAL_MEMORY = 7 * GIB  # a machine sold with 8 GB reports a little less; the engine takes 3.3 GB
GPU_MEMORY = 14 * GIB  # the smallest Droplet with a GPU has 32
LOCAL_PYTHONS = ((3, 11), (3, 13))
# Measured: 3.5 GB of engine, 0.3 GB of model, and as much again while pip unpacks.
LOCAL_FIRST_RUN = 8 * GIB
LOCAL_LATER = 1 * GIB
# Images (unpacked and as build layers) and a model; afterwards only logs and containers grow.
DOCKER_FIRST_RUN = {"gpu": 40 * GIB, "cpu": 12 * GIB}
DOCKER_LATER = 2 * GIB


@dataclass(frozen=True)
class Check:
    """One judgement. `fix` is empty when all is well."""

    name: str
    status: Status
    found: str
    wanted: str = ""
    fix: str = ""

    @property
    def line(self) -> str:
        if self.status == "ok":
            return self.found
        return f"found {self.found}; wanted {self.wanted}; fix: {self.fix}"

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def of_line(name: str, line: str, status: Status = "fail") -> Check:
    """`NAME: found …; wanted …; fix: …`, as other programs of the stack say it, into its parts."""
    text = re.sub(r"^[A-Za-z_ ]+: ", "", line) if ": found " in line else line
    found, _, rest = text.removeprefix("found ").partition("; wanted ")
    wanted, _, fix = rest.partition("; fix: ")
    return Check(name, status, found, wanted or "an answer", fix or "see above")


def python(host: Host, mode: Mode) -> Check:
    found = ".".join(map(str, host.python))
    low, high = LOCAL_PYTHONS
    if mode == "local" and not low <= host.python <= high:
        return Check(
            "python", "fail", found, "3.11 to 3.13 (vLLM's CPU build)", "apt install python3.12"
        )
    if mode == "local" and not host.has_venv:
        fix = f"apt install python{found}-venv"
        return Check("python", "fail", f"{found} without ensurepip", "python -m venv", fix)
    return Check("python", "ok", found)


def platform(host: Host, mode: Mode) -> Check:
    found = f"{host.system} {host.machine}"
    if mode == "local" and (host.system, host.machine) != ("Linux", "x86_64"):
        wanted = "Linux x86_64 (the CPU engine is built for it)"
        return Check(
            "platform", "fail", found, wanted, "use Docker (STACK_MODE=cpu) or such a host"
        )
    return Check("platform", "ok", found)


def memory(host: Host, mode: Mode) -> Check:
    found = f"{host.memory / GIB:.1f} GiB"
    if mode == "gpu" and host.memory < GPU_MEMORY:
        wanted = "16 GB beside a GPU (the engine's processes, the weights' way to it)"
        return Check("memory", "warn", found, wanted, "a larger machine")
    if mode == "local" and host.memory < LOCAL_MEMORY:
        return Check("memory", "fail", found, "8 GB for local mode", "use a larger machine")
    return Check("memory", "ok", found)


def version_tuple(text: str) -> tuple[int, ...]:
    """`28.2.2-rc1` → (28, 2, 2); an unreadable part ends it."""
    parts: list[int] = []
    for part in text.lstrip("v").split("."):
        digits = part.split("-")[0].split("+")[0]
        if not digits.isdigit():
            break
        parts.append(int(digits))
    return tuple(parts)


def docker(host: Host, mode: Mode) -> list[Check]:
    if mode == "local":
        state = host.engine.version or host.engine.detail
        return [Check("docker", "ok", f"not used in local mode ({state})")]
    version = host.engine.version
    refusal = engine_problem(mode, host.engine)
    if refusal:
        return [of_line("docker", str(refusal))]
    if version_tuple(version) < ENGINE_MINIMUM:
        fix = "curl -fsSL https://get.docker.com | sh"
        return [Check("docker", "fail", f"engine {version}", "20.10 or newer", fix)]
    return [Check("docker", "ok", f"engine {version}"), compose(host.compose)]


def compose(version: str) -> Check:
    minimum = ".".join(map(str, COMPOSE_MINIMUM))
    fix = "apt install docker-compose-plugin (Docker's own repository)"
    if not version:
        return Check("compose", "fail", "no docker compose plugin", f"{minimum} or newer", fix)
    if version_tuple(version) < COMPOSE_MINIMUM:
        return Check("compose", "fail", version, f"{minimum} or newer", fix)
    return Check("compose", "ok", version)


def library(found: bool, mode: Mode) -> list[Check]:
    """vLLM's CPU build links libnuma; without it the engine ends with a riddle."""
    if found or mode != "local":
        return []
    wanted, fix = "libnuma.so.1, for vLLM's CPU build", "apt install libnuma1"
    return [Check("library", "fail", "no libnuma.so.1", wanted, fix)]


def gpu_count(gpus: Gpus, wanted: str, mode: Mode) -> Check:
    """TENSOR_PARALLEL_SIZE against the GPUs of this host; its form is the launcher's to judge."""
    refusal = gpu_problem(gpus) if mode == "gpu" else None
    if refusal:
        return of_line("gpu", str(refusal))
    unused = gpus.driverless or gpus.unseen
    if unused and mode != "gpu":
        why = "no nvidia-smi" if gpus.driverless else "nvidia-smi lists none"
        found = f"{unused} NVIDIA GPU without its driver ({why}), unused"
        fix = "install the driver and set STACK_MODE=gpu, or leave it so"
        return Check("gpu", "warn", found, f"no GPU in mode {mode}, or one in use", fix)
    found = f"{len(gpus.names)} GPU" + ("s" if len(gpus.names) != 1 else "")
    if gpus.names:
        found += f" ({', '.join(sorted(set(gpus.names)))})"
    if mode != "gpu" or not wanted.isdigit() or int(wanted) <= len(gpus.names):
        return Check("gpu", "ok", found)
    return Check(
        "gpu",
        "fail",
        f"TENSOR_PARALLEL_SIZE={wanted} and {found}",
        "at most the number of GPUs",
        f"TENSOR_PARALLEL_SIZE={len(gpus.names)} in .env",
    )


def untold(error: str) -> Check:
    """GPUs that nvidia-smi lists and tells nothing else of."""
    found = f"nvidia-smi --query-gpu: {error[:200]}"
    fix = "run nvidia-smi by hand; reboot if it fails"
    return Check("gpu", "warn", found, "an answer to judge the GPU by", fix)


def port(
    address: str, number: int, error: str, holder: Listener | None, ours: bool, mode: Mode = "local"
) -> Check:
    """`error` is why a bind failed (empty = free); `ours` means this very stack listens there."""
    where = f"{address}:{number}"
    if ours:
        return Check("port", "ok", f"{where} (this stack)")
    # A low port is opened by Docker's daemon, not by this user.
    if not error or (error == "Permission denied" and mode != "local"):
        return Check("port", "ok", f"{where} free")
    if error == "Permission denied":
        fix = "NGINX_PORT=8080 in .env, or run as root"
        return Check("port", "fail", f"{where}: {error}", "a port this user may open", fix)
    if holder is None and error != "Address already in use":
        return Check(
            "port", "fail", f"{where}: {error}", "an address of this host", "set NGINX_BIND"
        )
    return Check(
        "port", "fail", f"{where} in use by {_who(holder)}", "a free port", _free_it(holder)
    )


def _who(holder: Listener | None) -> str:
    if holder is None:
        return "another program (of another user, or Docker's)"
    clone = holder.cwd.partition("/.run/")[0] if "/.run/" in holder.cwd else ""
    whose = f", the stack in {clone}" if clone else ""
    return f"{holder.name} (pid {holder.pid}{whose})"


def _free_it(holder: Listener | None) -> str:
    stop = f"stop it (kill {holder.pid})" if holder else "stop it"
    if holder and "/.run/" in holder.cwd:
        stop = f"make down in {holder.cwd.partition('/.run/')[0]}"
    return f"{stop}, or set another NGINX_PORT in .env"


def disk(place: str, free: int, needed: int) -> Check:
    found = f"{free / GIB:.1f} GiB free at {place}"
    if free < needed:
        return Check(
            "disk", "fail", found, f"{needed / GIB:.0f} GiB", "free some, or a larger disk"
        )
    return Check("disk", "ok", found)
