"""The parsers, on captured output."""

import socket
from pathlib import Path

import pytest
from stackctl.doctor import facts
from stackctl.mode import Engine, Gpus
from stackctl.process import NOT_FOUND, Result

DATA = Path(__file__).parent / "data"


def capture(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Result(0, "28.2.2\n", ""), Engine("ok", version="28.2.2")),
        (Result(NOT_FOUND, "", ""), Engine("absent", "no docker command")),
    ],
)
def test_engine(result: Result, expected: Engine) -> None:
    assert facts.parse_engine(result) == expected


def test_engine_client_alone() -> None:
    engine = facts.parse_engine(Result(1, "\n", capture("docker-version-no-daemon.txt")))
    assert engine.state == "absent"
    assert "Is the docker daemon running" in engine.detail


def test_engine_that_refuses() -> None:
    engine = facts.parse_engine(Result(1, "\n", capture("docker-version-refused.txt")))
    assert engine.state == "refused"


def test_compose_versions() -> None:
    assert facts.parse_compose(Result(0, "2.40.3\n", "")) == "2.40.3"
    assert facts.parse_compose(Result(0, "v5.5.0\n", "")) == "5.5.0"
    assert facts.parse_compose(Result(1, "", "docker: 'compose' is not a docker command.")) == ""


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Result(0, capture("nvidia-smi-h200.csv"), ""), Gpus(("NVIDIA H200",))),
        (Result(0, capture("nvidia-smi-h200-x2.csv"), ""), Gpus(("NVIDIA H200",) * 2)),
        (Result(6, "No devices were found\n", ""), Gpus()),
    ],
)
def test_gpus(result: Result, expected: Gpus) -> None:
    assert facts.parse_gpus(result) == expected


def test_a_broken_driver_is_not_no_gpu() -> None:
    gpus = facts.parse_gpus(Result(9, capture("nvidia-smi-no-driver.txt"), ""))
    assert "couldn't communicate with the NVIDIA driver" in gpus.error


def test_the_holder_of_a_port_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert facts.bind_error("127.0.0.1", port) == "Address already in use"
        holder = facts.find_listener(port)
    assert holder is not None
    assert holder.cwd == str(Path.cwd())
    assert facts.bind_error("127.0.0.1", port) == ""


def test_an_address_of_another_host_cannot_be_bound() -> None:
    assert facts.bind_error("192.0.2.1", 0) == "Cannot assign requested address"


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert facts.read_free(tmp_path / "not" / "yet") > 0


def test_nvidia_gpus_on_the_pci_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = {
        "0000:01:00.0": ("0x10de", "0x030000"),
        "0000:02:00.0": ("0x10de", "0x030200"),
        "0000:02:00.1": ("0x10de", "0x040300"),  # a card's own sound
        "0000:00:02.0": ("0x8086", "0x030000"),
    }
    for name, (vendor, kind) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "0000:03:00.0").mkdir()  # went away meanwhile
    assert facts.count_nvidia(tmp_path) == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.read_gpus(tmp_path).driverless == 2
    blind = tmp_path / "nvidia-smi"
    blind.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    blind.chmod(0o755)
    assert facts.read_gpus(tmp_path).unseen == 2
    blind.unlink()
    assert facts.read_gpus(tmp_path / "none") == Gpus()
