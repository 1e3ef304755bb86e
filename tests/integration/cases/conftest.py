"""One row for all cases, entered through each of its two doors."""

from collections.abc import Iterator

import pytest
from common.row import Door, Row, running


@pytest.fixture(scope="package")
def row(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Row]:
    with running(tmp_path_factory.mktemp("row")) as row:
        yield row


@pytest.fixture(params=["gateway", "nginx"])
def door(row: Row, request: pytest.FixtureRequest) -> Iterator[Door]:
    """The row without old scripts and lines; afterwards no trace of an exception is in it."""
    door = row.door(request.param)
    row.engine.clear()
    row.gateway.lines.clear()  # late ones of earlier requests may follow; each has its id
    yield door
    assert "trace" not in row.gateway.output
