"""Docker's side of a GPU: the container toolkit, CDI, the cgroup driver."""

import json
from collections.abc import Mapping
from typing import Any

from stackctl import process
from stackctl.doctor.checks import Check, version_tuple

CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
INSTALL = f"install nvidia-container-toolkit (NVIDIA's apt repository), then: {CONFIGURE}"
# From here on Docker gives GPUs to containers by CDI where a specification exists, and what it
# gave is not lost at a daemon-reload.
DOCKER_BY_CDI = (29, 2)
OLDEST_TOOLKIT = (1, 16)

Info = Mapping[str, Any]


def read() -> Info:
    """`docker info`; empty where it does not answer."""
    done = process.run(["docker", "info", "--format", "{{json .}}"], timeout=20)
    try:
        found = json.loads(done.out) if done.rc == 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read_version() -> str:
    """nvidia-ctk's, empty where there is none."""
    done = process.run(["nvidia-ctk", "--version"], timeout=10)
    words = done.out.split()
    return next((w for w in words if version_tuple(w)), "") if done.rc == 0 else ""


def devices(info: Info) -> list[str]:
    """GPUs that Docker knows by CDI (nvidia.com/gpu=0 …)."""
    listed = info.get("DiscoveredDevices") or []
    ids = [str(one.get("ID", "")) for one in listed if isinstance(one, dict)]
    return [one for one in ids if one.startswith("nvidia.com/gpu")]


def judge(info: Info, version: str) -> list[Check]:
    """All findings; none where Docker told nothing."""
    if not info:
        return []
    return [_registered(info, version), *_age(version), *_cgroups(info), *_rootless(info)]


def _registered(info: Info, version: str) -> Check:
    runtimes = info.get("Runtimes") or {}
    if "nvidia" in runtimes or devices(info):
        return Check("toolkit", "ok", f"nvidia-container-toolkit {version or 'registered'}")
    wanted = "the NVIDIA container toolkit registered with Docker"
    if version:
        return Check("toolkit", "fail", f"toolkit {version}, unknown to Docker", wanted, CONFIGURE)
    return Check("toolkit", "fail", "no nvidia-container-toolkit", wanted, INSTALL)


def _age(version: str) -> list[Check]:
    if not version or version_tuple(version) >= OLDEST_TOOLKIT:
        return []
    fix = "sudo apt install --only-upgrade nvidia-container-toolkit"
    return [Check("toolkit", "warn", f"toolkit {version}", "1.16 or newer", fix)]


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


def _rootless(info: Info) -> list[Check]:
    options = info.get("SecurityOptions") or []
    if not any("rootless" in str(option) for option in options):
        return []
    fix = "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place, or rootful"
    return [Check("docker", "warn", "a rootless engine", "one that may give GPUs away", fix)]
