"""Launchers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launched import Launcher


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Launcher]]:
    started: list[Launcher] = []

    def begin(script: str, **environ: str) -> Launcher:
        started.append(Launcher(tmp_path, script, **environ))
        return started[-1]

    yield begin
    for launcher in started:
        launcher.process.kill()  # its guard ends the rest
        launcher.process.wait()
