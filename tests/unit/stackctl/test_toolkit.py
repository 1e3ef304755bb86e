"""Docker's side of a GPU, judged from `docker info`."""

from __future__ import annotations

from typing import Any

import pytest
from stackctl.doctor import toolkit
from stackctl.doctor.cards import Card
from stackctl.doctor.toolkit import Toolkit

GPU = {"Source": "cdi", "ID": "nvidia.com/gpu=0"}
OTHER = {"Source": "cdi", "ID": "vendor.example/device=0"}
NEW = Toolkit("1.19.1", hook=True)


def info(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as docker info has it
    told = {
        "ServerVersion": "29.7.2", "CgroupDriver": "systemd", "DiscoveredDevices": [GPU],
        "Runtimes": {"nvidia": {}, "runc": {}}, "SecurityOptions": ["name=seccomp,profile=builtin"],
        "DockerRootDir": "/var/lib/docker",
    }  # fmt: skip
    return told | changes


def said(told: dict[str, Any], found: Toolkit = NEW, *cards: Card) -> dict[str, str]:
    """Name → status of what is not fine."""
    return {c.name: c.status for c in toolkit.judge(told, found, cards) if c.status != "ok"}


def test_a_sound_docker_is_fine() -> None:
    assert said(info()) == {}
    assert said(info(Runtimes=None), Toolkit()) == {}  # CDI alone is enough


@pytest.mark.parametrize(
    ("found", "status"),
    [(Toolkit(), "fail"), (Toolkit("1.19.1"), "fail"), (NEW, "warn")],
)
def test_a_docker_that_knows_of_no_toolkit(found: Toolkit, status: str) -> None:
    bare = info(Runtimes={"runc": {}}, DiscoveredDevices=[OTHER], CgroupDriver="cgroupfs")
    assert said(bare, found) == {"toolkit": status}


def test_without_docker_only_a_missing_toolkit_is_said() -> None:
    (check,) = toolkit.without_docker(Toolkit())
    assert (check.status, check.found) == ("fail", "no nvidia-container-toolkit")
    assert toolkit.without_docker(NEW) == []
    assert said({}, Toolkit()) == {}


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({}, False), ({"CgroupDriver": "cgroupfs", "ServerVersion": "27.1.0"}, False),
        ({"ServerVersion": "28.5.1"}, True), ({"DiscoveredDevices": None}, True),
    ],
)  # fmt: skip
def test_gpus_that_a_daemon_reload_takes_away(changes: dict[str, Any], warned: bool) -> None:
    assert said(info(**changes)) == ({"cgroups": "warn"} if warned else {})


@pytest.mark.parametrize(
    ("version", "warned"), [("1.17.7", True), ("1.17.8", False), ("1.20.0", False), ("", False)]
)
def test_a_toolkit_with_a_known_hole(version: str, warned: bool) -> None:
    assert said(info(), Toolkit(version, hook=True)) == ({"toolkit": "warn"} if warned else {})


def test_slices_have_names_of_their_own_in_cdi() -> None:
    whole, cut = Card({"index": "1"}), Card({"index": "1", "mig.mode.current": "Enabled"})
    assert said(info(), NEW, whole) == {"cdi": "warn"}
    assert said(info(), NEW, cut) == {}
    assert said(info(DiscoveredDevices=[], CgroupDriver="cgroupfs"), NEW, whole) == {}


@pytest.mark.parametrize(
    "changes", [{"SecurityOptions": ["name=rootless"]}, {"DockerRootDir": "/var/snap/docker/x"}]
)
def test_dockers_that_need_more_work(changes: dict[str, Any]) -> None:
    assert said(info(**changes)) == {"docker": "warn"}
