"""What the docs name is there: endings and their tests, files, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gateway import relay
from gateway.log import Outcome

ROOT = Path(__file__).resolve().parents[3]
ARCHITECTURE = ROOT / "docs/architecture.md"
# Decisions tell how things were when they were taken.
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "secrets/README.md")),
]
FILE = re.compile(r"`((?:gateway|tests|docs|nginx|scripts|docker|compose)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
# A pattern, and what is made by `make init` and `make pin`.
ELSEWHERE = {"compose/models/NAME.env", "gateway/api_keys.toml", "compose/pinned.yml"}


def endings() -> list[list[str]]:
    """Rows of the table of endings: ending, outcome, what the client sees, tests."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    table = text.partition("| ending | outcome |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return rows[2:]


def drawn() -> set[str]:
    """The endings in the drawing of gateway/relay.py."""
    lines = (relay.__doc__ or "").partition("every ending:\n")[2].partition("\n\n")[0]
    labels = re.findall(r"^ {6}(?! )(.+?)(?= {2}| ─)", lines, re.MULTILINE)
    return {label.removesuffix(",") for label in labels}


def test_each_drawn_ending_is_in_the_table() -> None:
    assert len(drawn()) > 10
    assert drawn() - {row[0] for row in endings()} == set()


def test_each_outcome_is_in_the_table_and_no_other() -> None:
    found = {word for row in endings() for word in re.findall(r"`(\w+)`", row[1])}
    assert found - {"resent"} == set(get_args(Outcome))


@pytest.mark.parametrize("row", endings(), ids=lambda row: row[0])
def test_each_ending_names_tests_that_exist(row: list[str]) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", row[3])
    assert named
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} {test}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_links_of_the_docs_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [
        *(name for name in FILE.findall(text) if not (ROOT / name).exists()),
        *(link for link in LINK.findall(text) if not (page.parent / link).exists()),
    ]
    assert set(missing) - ELSEWHERE == set()
