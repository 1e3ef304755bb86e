"""Local mode's processes under a real supervisord."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stackctl.layout import Layout
from stackctl.supervisor import Managed, Supervisor, configuration, leftovers, stop_waits

ROOT = Path(__file__).resolve().parents[3]
# Notes when it was told to stop and when it had drained, two seconds later.
DRAINS = """
import pathlib, signal, sys, time
note = pathlib.Path(sys.argv[1])
def stop(*_):
    begun = time.monotonic()
    time.sleep(2)
    note.write_text(f"{begun} {time.monotonic()}")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
note.with_suffix(".up").touch()
time.sleep(60)
"""
PROGRAMS = (
    Managed("vllm", "TERM", 20, 10),
    Managed("gateway", "TERM", 20, 20),
    Managed("nginx", "TERM", 20, 30),
)


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    layout = Layout(tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for folder in (layout.logs, layout.programs):
        folder.mkdir(parents=True)
    for program in PROGRAMS:
        note = str(tmp_path / f"{program.name}.note")
        argv = [sys.executable, "-c", DRAINS, note]
        env = {"PATH": os.defpath, "STACK_RUN_DIR": str(layout.run)}
        spec = {"argv": argv, "env": env, "cwd": str(tmp_path), "inputs": ""}
        (layout.programs / f"{program.name}.json").write_text(json.dumps(spec))
    layout.supervisor_conf.write_text(configuration(layout, PROGRAMS))
    yield layout
    Supervisor(layout).shut_down(5)


def start(layout: Layout) -> Supervisor:
    supervisor = Supervisor(layout)
    supervisor.launch()
    for program in PROGRAMS:
        supervisor.start(program.name)
    end = time.monotonic() + 15
    while not all((layout.root / f"{each.name}.up").exists() for each in PROGRAMS):
        assert time.monotonic() < end
        time.sleep(0.05)
    return supervisor


def drained_in_order(layout: Layout) -> bool:
    """Each program had its two seconds and wrote its note, and only then the next was told."""
    notes = [(layout.root / f"{name}.note").read_text() for name in ("nginx", "gateway", "vllm")]
    times = [float(word) for note in notes for word in note.split()]
    return len(times) == 6 and times == sorted(times)


def test_programs_stop_one_after_the_other_and_drain(layout: Layout) -> None:
    start(layout).shut_down(1)
    assert drained_in_order(layout)
    assert leftovers(layout) == []
    assert not layout.supervisor_socket.exists()
    log = (layout.logs / "supervisord.log").read_text()
    assert "SIGKILL" not in log
    assert "running as root" not in log


def test_a_daemon_that_stops_already_is_waited_for(layout: Layout) -> None:
    """As after a `down` that was interrupted: every question is answered with a fault."""
    supervisor = start(layout)
    os.kill(int(layout.supervisor_pid.read_text()), signal.SIGTERM)
    end = time.monotonic() + 5
    while supervisor.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
    assert supervisor.states() == {}
    supervisor.shut_down(1)
    assert drained_in_order(layout)
    assert leftovers(layout) == []


def test_a_killed_daemon_leaves_nothing(layout: Layout) -> None:
    supervisor = start(layout)
    os.kill(int(layout.supervisor_pid.read_text()), signal.SIGKILL)
    assert leftovers(layout) != []
    supervisor.shut_down(1)
    assert leftovers(layout) == []


def test_the_times_to_stop_are_those_of_the_daemon_that_runs(layout: Layout) -> None:
    assert stop_waits(layout) == {"vllm": 20, "gateway": 20, "nginx": 20}
    layout.supervisor_conf.write_text("[half")
    assert stop_waits(layout) == {}
    layout.supervisor_conf.unlink()
    assert stop_waits(layout) == {}


def test_a_second_shut_down_and_one_without_a_daemon_are_quiet(layout: Layout) -> None:
    supervisor = start(layout)
    supervisor.shut_down(1)
    supervisor.shut_down(1)
    assert leftovers(layout) == []


# vLLM's processes are called by what they do, and that title lies over their environment.
TITLED = """
import pathlib, sys, time
pathlib.Path("/proc/self/comm").write_text(sys.argv[1])
print(flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("name", "is_ours"), [("VLLM::EngineCor", True), ("python3", False)])
def test_a_process_whose_title_hides_its_environment(
    layout: Layout, name: str, is_ours: bool
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TITLED, name], env={}, cwd=layout.root, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert (process.pid in leftovers(layout)) == is_ours
            assert process.pid not in leftovers(Layout(layout.run))
        finally:
            process.kill()
