"""Where STACK_REQUIRE_DOCKER=1 says that everything can run, a skipped test is a failed one."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("STACK_REQUIRE_DOCKER") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where nothing may be: {call.excinfo}"
    return report
