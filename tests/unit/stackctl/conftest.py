"""Fixtures of the CLI's tests: a checkout of their own, and programs that a host may have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from common import checkout as checkouts
from common.checkout import Checkout

DATA = Path(__file__).parent / "data"

# Answers from a JSON file: the first entry whose words start the arguments. Every call is noted.
FAKE = """#!/bin/sh
exec python3 - "$@" <<'END'
import json, pathlib, sys
here = pathlib.Path({here!r})
with (here / "{name}.calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
for words, rc, out, err in json.loads((here / "{name}.json").read_text()):
    if sys.argv[1 : 1 + len(words)] == words:
        sys.stdout.write(out)
        sys.stderr.write(err)
        sys.exit(rc)
sys.exit("{name}: no answer for " + " ".join(sys.argv[1:]))
END
"""
Answers = list[tuple[list[str], int, str, str]]
Fake = Callable[..., None]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout after `init`, on a host without Docker and GPU, with a free port."""
    made = checkouts.make(tmp_path)
    # So that a GPU of the host that runs the tests, without its driver, makes no difference.
    made.program("nvidia-smi", "#!/bin/sh\necho No devices were found\nexit 6\n")
    done = made.stack("init", env={"STACK_MODE": "local"})
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def container_toolkit(checkout: Checkout) -> None:
    """NVIDIA's, as a host has it that can serve from its GPU in Docker."""
    said = "NVIDIA Container Toolkit CLI version 1.19.1"
    checkout.program("nvidia-ctk", f"#!/bin/sh\necho '{said}'\n")


@pytest.fixture
def fake(checkout: Checkout) -> Fake:
    """Install a program with answers."""

    def install(name: str, answers: Answers) -> None:
        (checkout.home / f"{name}.json").write_text(json.dumps(answers))
        checkout.program(name, FAKE.format(here=str(checkout.home), name=name))

    return install
