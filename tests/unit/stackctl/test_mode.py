"""auto picks by what the host has, and never falls back silently."""

from pathlib import Path

import pytest
from stackctl.errors import StackError
from stackctl.mode import Engine, Gpus, decide, intended, proven, record, recorded

OK = Engine("ok", version="28.0.0")
ABSENT = Engine("absent", "no docker command")
REFUSED = Engine("refused", "permission denied")
ONE = Gpus(("NVIDIA H200",))
NONE = Gpus()
DRIVERLESS = Gpus(driverless=1)
BROKEN = Gpus(error="NVIDIA-SMI has failed because it couldn't communicate with the driver")


@pytest.mark.parametrize(
    ("wanted", "engine", "gpus", "expected"),
    [
        ("auto", OK, ONE, "gpu"),
        ("", OK, NONE, "cpu"),
        ("auto", ABSENT, NONE, "local"),
        ("gpu", OK, ONE, "gpu"),
        ("cpu", OK, ONE, "cpu"),
        ("local", REFUSED, BROKEN, "local"),
        ("cpu", OK, BROKEN, "cpu"),
        ("cpu", OK, DRIVERLESS, "cpu"),
        ("local", ABSENT, DRIVERLESS, "local"),
    ],
)
def test_choice(wanted: str, engine: Engine, gpus: Gpus, expected: str) -> None:
    assert decide(wanted, engine, gpus) == expected


@pytest.mark.parametrize(
    ("wanted", "engine", "gpus", "words"),
    [
        ("auto", ABSENT, ONE, "get.docker.com | sh && nvidia-ctk"),
        ("auto", REFUSED, NONE, "usermod -aG docker"),
        ("auto", REFUSED, ONE, "usermod -aG docker"),
        ("auto", OK, BROKEN, "couldn't communicate with the driver"),
        ("auto", ABSENT, BROKEN, "couldn't communicate with the driver"),
        ("gpu", OK, NONE, "no NVIDIA GPU"),
        ("gpu", OK, DRIVERLESS, "ubuntu-drivers"),
        ("gpu", OK, Gpus(unseen=1), "open kernel modules"),
        ("auto", OK, Gpus(error="Driver/library version mismatch"), "fix: reboot: the driver was"),
        ("auto", OK, DRIVERLESS, "STACK_MODE=cpu or local"),
        ("auto", ABSENT, DRIVERLESS, "STACK_MODE=cpu or local"),
        ("gpu", ABSENT, ONE, "no usable Docker engine"),
        ("cpu", ABSENT, NONE, "STACK_MODE=local"),
        ("cpu", REFUSED, NONE, "usermod"),
        ("turbo", OK, ONE, "STACK_MODE=turbo"),
    ],
)
def test_refusal_has_its_fix(wanted: str, engine: Engine, gpus: Gpus, words: str) -> None:
    with pytest.raises(StackError) as caught:
        decide(wanted, engine, gpus)
    line = str(caught.value)
    assert words in line
    assert "fix:" in line
    assert "\n" not in line


def test_a_mode_is_proven_once_it_was_ready(tmp_path: Path) -> None:
    path = tmp_path / "mode"
    assert (recorded(path), proven(path)) == (None, None)
    record(path, "cpu", ready=False)
    assert (recorded(path), proven(path)) == ("cpu", None)
    record(path, "cpu", ready=True)
    record(path, "cpu", ready=False)
    assert (recorded(path), proven(path)) == ("cpu", "cpu")
    record(path, "gpu", ready=False)
    assert (recorded(path), proven(path)) == ("gpu", None)


@pytest.mark.parametrize(
    ("wanted", "engine", "gpus", "mode"),
    [
        ("auto", OK, ONE, "gpu"), ("auto", ABSENT, ONE, "gpu"), ("auto", ABSENT, BROKEN, "gpu"),
        ("", OK, DRIVERLESS, "gpu"), ("auto", REFUSED, NONE, "cpu"), ("cpu", ABSENT, ONE, "cpu"),
        ("gpu", ABSENT, NONE, "gpu"), ("auto", ABSENT, NONE, "local"),
    ],
)  # fmt: skip
def test_the_mode_to_examine_is_known_where_none_can_start(
    wanted: str, engine: Engine, gpus: Gpus, mode: str
) -> None:
    assert intended(wanted, engine, gpus) == mode


def test_a_mode_that_there_is_not_cannot_be_examined() -> None:
    with pytest.raises(StackError):
        intended("turbo", OK, ONE)
