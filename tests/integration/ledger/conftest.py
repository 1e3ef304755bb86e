"""One PostgreSQL server for all tests of this folder, and a fresh database for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from common.postgres import PostgreSQL, binaries


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    if binaries() is None:
        pytest.skip("no PostgreSQL server on this machine (Debian: apt install postgresql)")
    with PostgreSQL() as running:
        yield running


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    return (f"usage{number}" for number in itertools.count())


@pytest.fixture
def database(server: PostgreSQL, names: Iterator[str]) -> str:
    """The name of an empty database, on a server that runs whatever the test before did to it."""
    if not server.runs:
        server.start()
    name = next(names)
    server.database(name)
    return name
