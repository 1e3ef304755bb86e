"""The system and, where one is to serve, a GPU's host: asked once."""

from dataclasses import asdict, dataclass

from stackctl import mode
from stackctl.containers import Containers
from stackctl.doctor import cards, facts, system, toolkit, xids
from stackctl.errors import StackError
from stackctl.layout import Layout
from stackctl.mode import Mode

OF_DOCKER = (
    "ServerVersion",
    "CgroupDriver",
    "Driver",
    "DockerRootDir",
    "SecurityOptions",
    "OperatingSystem",
)


@dataclass(frozen=True)
class GpuHost:
    """What a GPU's programs and Docker said. `engine`: the id of this stack's own engine container,
    empty when none runs."""

    gpus: cards.Cards
    xids: list[int]
    docker: toolkit.Info
    toolkit: toolkit.Toolkit
    engine: str = ""


@dataclass(frozen=True)
class Seen:
    """What is asked for doctor and `up` alone. `gpu` is None where no GPU is to serve."""

    system: system.System
    gpu: GpuHost | None = None


def gather(layout: Layout, chosen: Mode) -> Seen:
    return Seen(system.read(), _gpu_host(layout) if chosen == "gpu" else None)


def _gpu_host(layout: Layout) -> GpuHost:
    return GpuHost(
        gpus=cards.read(),
        xids=xids.read(),
        docker=toolkit.read(),
        toolkit=toolkit.read_toolkit(),
        engine=_engine(layout),
    )


def _engine(layout: Layout) -> str:
    """Only a stack that was started has one; else Docker is not asked."""
    if mode.recorded(layout.mode_file) != "gpu":
        return ""
    try:
        found = Containers(layout.root).ask().get("vllm")
    except StackError:
        return ""
    return found.id if found and found.state == "running" else ""


def told(host: facts.Host, seen: Seen) -> dict[str, object]:
    """The facts themselves, for --json: sizes in bytes, nothing secret."""
    around = _around(seen.gpu) if seen.gpu else None
    return {"host": asdict(host), "system": asdict(seen.system), "gpu_host": around}


def _around(found: GpuHost) -> dict[str, object]:
    return {
        "gpus": [{**card.fields, "mig_instances": card.slices} for card in found.gpus.cards],
        "gpu_processes": [
            {"pid": app.pid, "name": app.name, "gpu": app.uuid, "used": app.used}
            for app in found.gpus.apps
        ],
        "xids": found.xids,
        "docker": {name: found.docker.get(name) for name in OF_DOCKER},
        "docker_gpus": toolkit.devices(found.docker),
        "container_toolkit": asdict(found.toolkit),
    }
