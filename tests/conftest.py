"""For all tests: a skipped one fails where STACK_REQUIRE_DOCKER=1 says that everything can run, and
signals mean what they mean in a terminal."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest


def pytest_configure() -> None:
    """A shell starts what it puts into the background with Ctrl-C ignored, and programs that tests
    start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("STACK_REQUIRE_DOCKER") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where nothing may be: {call.excinfo}"
    return report
