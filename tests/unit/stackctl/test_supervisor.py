"""Local mode's processes under a real supervisord."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stackctl.layout import Layout
from stackctl.supervisor import Managed, Supervisor, configuration, leftovers

ROOT = Path(__file__).resolve().parents[3]
# Notes when it was told to stop and when it had drained, half a second later.
DRAINS = """
import pathlib, signal, sys, time
note = pathlib.Path(sys.argv[1])
def stop(*_):
    begun = time.monotonic()
    time.sleep(0.5)
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
    Supervisor(layout).shut_down(PROGRAMS, 5)


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


def test_programs_stop_one_after_the_other_and_drain(layout: Layout) -> None:
    start(layout).shut_down(PROGRAMS, 10)
    times = {}
    for program in PROGRAMS:
        begun, drained = (layout.root / f"{program.name}.note").read_text().split()
        times[program.name] = (float(begun), float(drained))
    assert times["nginx"][1] <= times["gateway"][0]
    assert times["gateway"][1] <= times["vllm"][0]
    assert leftovers(layout) == []
    assert not layout.supervisor_socket.exists()


def test_a_second_shut_down_and_one_without_a_daemon_are_quiet(layout: Layout) -> None:
    supervisor = start(layout)
    supervisor.shut_down(PROGRAMS, 10)
    supervisor.shut_down(PROGRAMS, 10)
    assert leftovers(layout) == []
