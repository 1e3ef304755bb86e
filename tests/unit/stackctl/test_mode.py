"""auto picks by what the host has, and never falls back silently."""

import pytest
from stackctl.errors import StackError
from stackctl.mode import Engine, Gpus, decide

OK = Engine("ok", version="28.0.0")
ABSENT = Engine("absent", "no docker command")
REFUSED = Engine("refused", "permission denied")
ONE = Gpus(("NVIDIA H200",))
NONE = Gpus()
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
