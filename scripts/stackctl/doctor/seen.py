"""A GPU's host, asked once."""

from dataclasses import asdict, dataclass

from stackctl.doctor import facts, gpus, system, toolkit
from stackctl.mode import Mode

OF_DOCKER = ("ServerVersion", "CgroupDriver", "Driver", "SecurityOptions", "OperatingSystem")


@dataclass(frozen=True)
class Seen:
    """What its programs and files said."""

    cards: list[gpus.Card]
    slices: int
    xids: list[int]
    docker: toolkit.Info
    toolkit: str
    system: system.System


def gather(chosen: Mode) -> Seen | None:
    """Nothing is asked where no GPU is to serve."""
    if chosen != "gpu":
        return None
    return Seen(
        cards=gpus.read(),
        slices=gpus.read_slices(),
        xids=gpus.read_xids(),
        docker=toolkit.read(),
        toolkit=toolkit.read_version(),
        system=system.read(),
    )


def told(host: facts.Host, seen: Seen | None) -> dict[str, object]:
    """The facts themselves, for --json: sizes in bytes, nothing secret."""
    return {"host": asdict(host), "gpu_host": _around(seen) if seen else None}


def _around(seen: Seen) -> dict[str, object]:
    return {
        "gpus": [dict(card) for card in seen.cards],
        "mig_instances": seen.slices,
        "xids": seen.xids,
        "docker": {name: seen.docker.get(name) for name in OF_DOCKER},
        "docker_gpus": toolkit.devices(seen.docker),
        "container_toolkit": seen.toolkit,
        "system": asdict(seen.system),
    }
