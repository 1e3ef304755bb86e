"""A GPU's host, asked once."""

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
class Seen:
    """What its programs and files said. `engine`: the id of this stack's own engine container,
    empty when none runs."""

    gpus: cards.Cards
    xids: list[int]
    docker: toolkit.Info
    toolkit: toolkit.Toolkit
    system: system.System
    engine: str = ""


def gather(layout: Layout, chosen: Mode) -> Seen | None:
    """Nothing is asked where no GPU is to serve."""
    if chosen != "gpu":
        return None
    return Seen(
        gpus=cards.read(),
        xids=xids.read(),
        docker=toolkit.read(),
        toolkit=toolkit.read_toolkit(),
        system=system.read(),
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


def told(host: facts.Host, seen: Seen | None) -> dict[str, object]:
    """The facts themselves, for --json: sizes in bytes, nothing secret."""
    return {"host": asdict(host), "gpu_host": _around(seen) if seen else None}


def _around(seen: Seen) -> dict[str, object]:
    return {
        "gpus": [{**card.fields, "mig_instances": card.slices} for card in seen.gpus.cards],
        "gpu_processes": [
            {"pid": app.pid, "name": app.name, "gpu": app.uuid, "used": app.used}
            for app in seen.gpus.apps
        ],
        "xids": seen.xids,
        "docker": {name: seen.docker.get(name) for name in OF_DOCKER},
        "docker_gpus": toolkit.devices(seen.docker),
        "container_toolkit": asdict(seen.toolkit),
        "system": asdict(seen.system),
    }
