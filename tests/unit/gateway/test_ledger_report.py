"""`python -m gateway.ledger`: groups, filters, table, JSON, and refusals in one line."""

from __future__ import annotations

import calendar
import json
from pathlib import Path

import pytest
from common.ledgers import CHAT

from gateway.ledger.__main__ import main
from gateway.ledger.store import Batch, Labels, Store
from gateway.ledger.target import of_file


def at(text: str, hour: int) -> int:
    year, month, day = map(int, text.split("-"))
    return calendar.timegm((year, month, day, hour, 0, 0))


ROWS: dict[Labels, list[int]] = {
    (at("2027-01-30", 23), "bob", "small", CHAT, "ok"): [1, 10, 100, 0],
    (at("2027-01-31", 0), "alice", "small", CHAT, "ok"): [2, 20, 200, 1],
    (at("2027-01-31", 23), "alice", "large", CHAT, "client_left"): [1, 5, 50, 1],
    (at("2027-02-01", 0), "alice", "large", CHAT, "rejected"): [4, 0, 0, 0],
}


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "u.sqlite3"
    store = Store(of_file(path))
    store.write(Batch(1, ROWS))
    store.close()
    monkeypatch.setenv("GATEWAY_USAGE_DB", str(path))
    return path


@pytest.mark.usefixtures("database")
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == (
        "key    requests  prompt tokens  completion tokens  estimated  failures\n"
        "alice         7             25                250          2         4\n"
        "bob           1             10                100          0         0\n"
        "total         8             35                350          2         4\n"
    )


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--by=model"], {"large": 5, "small": 3}),
        (["--by=day"], {"2027-01-30": 1, "2027-01-31": 3, "2027-02-01": 4}),
        (["--by=day", "--since=2027-01-31"], {"2027-01-31": 3, "2027-02-01": 4}),
        (["--by=day", "--until=2027-01-31"], {"2027-01-30": 1, "2027-01-31": 3}),
        (["--since=2027-01-31", "--until=2027-01-31"], {"alice": 3}),
        (["--by=day", "--key=alice", "--model=large"], {"2027-01-31": 1, "2027-02-01": 4}),
        (["--since=2027-03-01"], {}),
        (["--until=9999-12-31"], {"alice": 7, "bob": 1}),
    ],
)
def test_groups_and_filters(
    options: list[str], rows: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row[found["by"]], row["requests"]) for row in found["rows"]] == list(rows.items())
    assert found["total"]["requests"] == sum(rows.values())


@pytest.mark.usefixtures("database")
def test_the_json_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--json", "--key", "alice"])
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row == {
        "key": "alice",
        "requests": 7,
        "prompt_tokens": 25,
        "completion_tokens": 250,
        "estimated_requests": 2,
        "failures": 4,
        "outcomes": {"client_left": 1, "ok": 2, "rejected": 4},
    }


@pytest.mark.parametrize("made", [False, True], ids=["no file", "an empty file"])
def test_an_empty_ledger_is_one_line_and_stays_as_it_was(
    made: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "u.sqlite3"
    if made:
        path.touch()
    monkeypatch.setenv("GATEWAY_USAGE_DB", str(path))
    assert main([]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == []
    assert [each.name for each in tmp_path.iterdir()] == ([path.name] if made else [])


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--by=hour"], "'key', 'model', 'day'"),
        (["--since=yesterday"], "a date such as"),
        (["--since=2027-02-30"], "no day"),
        (["--until=20270131"], "a date such as"),
        (["--since=2027-02-01", "--until=2027-01-31"], "--until before --since"),
        (["--what"], "--what"),
        (["extra"], "extra"),
    ],
)
def test_bad_options_are_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(options)
    except SystemExit as end:  # argparse's way
        code = int(str(end.code))
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1)
    assert words in said.err


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ("off", 2, "found off"),
        ("postgresql://me:LEAKMARK@127.0.0.1:1/usage", 1, "refused"),
        ("postgresql://me@127.0.0.1:1/usage?password_file=/nowhere/pw", 1, "No such file"),
        (__file__, 1, "not a database"),
    ],
)
def test_a_database_that_cannot_be_read_is_one_line(
    value: str,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GATEWAY_USAGE_DB", value)
    assert main([]) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err
    assert "LEAKMARK" not in said.err
