"""Docker's side of a GPU: the container toolkit, CDI, the cgroup driver."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stackctl import process
from stackctl.doctor.cards import Card
from stackctl.doctor.checks import Check, version_tuple

CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
INSTALL = f"install nvidia-container-toolkit (NVIDIA's apt repository), then: {CONFIGURE}"
# From here on Docker gives GPUs to containers by CDI where a specification exists, and what it
# gave is not lost at a daemon-reload.
DOCKER_BY_CDI = (29, 2)
# It closed a hole by which an image could take over the host (CVE-2025-23266).
OLDEST_TOOLKIT = (1, 17, 8)
GPU = "nvidia.com/gpu"

Info = Mapping[str, Any]


def read() -> Info:
    """`docker info`; empty where it does not answer."""
    done = process.run(["docker", "info", "--format", "{{json .}}"], timeout=20)
    try:
        found = json.loads(done.out) if done.rc == 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Toolkit:
    """`version`: nvidia-ctk's, empty where there is none. `hook`: the program that Docker looks for
    when it starts, to know whether it can hand GPUs over."""

    version: str = ""
    hook: bool = False


def read_toolkit() -> Toolkit:
    done = process.run(["nvidia-ctk", "--version"], timeout=10)
    words = done.out.split() if done.rc == 0 else []
    version = next((word for word in words if version_tuple(word)), "")
    return Toolkit(version, shutil.which("nvidia-container-runtime-hook") is not None)


def devices(info: Info) -> list[str]:
    """GPUs that Docker knows by CDI (nvidia.com/gpu=0 …); it tells them from 28.3 on."""
    listed = info.get("DiscoveredDevices") or []
    ids = [str(one.get("ID", "")) for one in listed if isinstance(one, dict)]
    return [one for one in ids if one.startswith(GPU)]


def judge(info: Info, toolkit: Toolkit, cards: Sequence[Card]) -> list[Check]:
    """All findings; none where Docker told nothing. `cards` are those the engine would take."""
    if not info:
        return []
    parts = (_age(toolkit.version), _cgroups(info), _specified(info, cards), _oddities(info))
    return [_registered(info, toolkit), *(check for part in parts for check in part)]


def without_docker(toolkit: Toolkit) -> list[Check]:
    """What can be said before there is a Docker engine."""
    if toolkit.version or toolkit.hook:
        return []
    return [Check("toolkit", "fail", "no nvidia-container-toolkit", "it beside Docker", INSTALL)]


def _registered(info: Info, toolkit: Toolkit) -> Check:
    """Docker takes GPU requests by the hook alone, if it was there when Docker started: that can't
    be seen, so a toolkit that is not registered is a warning."""
    runtimes = info.get("Runtimes") or {}
    version = toolkit.version or "of unknown version"
    if "nvidia" in runtimes or devices(info):
        return Check("toolkit", "ok", f"nvidia-container-toolkit {version}")
    wanted = "the NVIDIA container toolkit registered with Docker"
    if toolkit.hook:
        return Check("toolkit", "warn", f"toolkit {version}, not registered", wanted, CONFIGURE)
    if toolkit.version:
        return Check("toolkit", "fail", f"toolkit {version}, unknown to Docker", wanted, CONFIGURE)
    return Check("toolkit", "fail", "no nvidia-container-toolkit", wanted, INSTALL)


def _specified(info: Info, cards: Sequence[Card]) -> list[Check]:
    """CDI's specification is made when the toolkit or the driver is installed and at each boot,
    not when MIG changes."""
    known = devices(info)
    whole = [card.get("index") for card in cards if card.get("mig.mode.current") != "Enabled"]
    lacking = [index for index in whole if f"{GPU}={index}" not in known]
    if not known or not lacking:
        return []
    found = f"no {GPU}={lacking[0]} among Docker's {len(known)} CDI devices"
    fix = "sudo systemctl restart nvidia-cdi-refresh (or nvidia-ctk cdi generate) and docker"
    return [Check("cdi", "warn", found, "a specification of each GPU", fix)]


def _age(version: str) -> list[Check]:
    if not version or version_tuple(version) >= OLDEST_TOOLKIT:
        return []
    fix = "sudo apt install --only-upgrade nvidia-container-toolkit"
    wanted = "1.17.8 or newer (before, an image could take over the host: CVE-2025-23266)"
    return [Check("toolkit", "warn", f"toolkit {version}", wanted, fix)]


def _cgroups(info: Info) -> list[Check]:
    """With the systemd driver and no CDI a `systemctl daemon-reload` (any apt install may do one)
    takes the GPU away from a running container: "Failed to initialize NVML: Unknown Error"."""
    by_cdi = version_tuple(str(info.get("ServerVersion", ""))) >= DOCKER_BY_CDI and devices(info)
    if info.get("CgroupDriver") != "systemd" or by_cdi:
        return []
    fix = 'Docker 29.2 with toolkit 1.18, or "exec-opts": ["native.cgroupdriver=cgroupfs"] in'
    return [
        Check(
            "cgroups", "warn",
            "the systemd cgroup driver without CDI (a daemon-reload takes GPUs from containers)",
            "GPUs by CDI, or the cgroupfs driver",
            f"{fix} /etc/docker/daemon.json",
        )
    ]  # fmt: skip


def _oddities(info: Info) -> list[Check]:
    """Kinds of Docker that hand GPUs over only with more work."""
    found = []
    if any("rootless" in str(option) for option in info.get("SecurityOptions") or []):
        fix = "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place, or rootful"
        wanted = "one that may give GPUs away"
        found.append(Check("docker", "warn", "a rootless engine", wanted, fix))
    if str(info.get("DockerRootDir", "")).startswith("/var/snap/"):
        fix = "sudo snap remove docker, then curl -fsSL https://get.docker.com | sh"
        wanted = "Docker's own packages (a snap does not see the toolkit)"
        found.append(Check("docker", "warn", "Docker from a snap", wanted, fix))
    return found
