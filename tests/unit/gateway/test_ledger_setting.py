"""GATEWAY_USAGE_DB: its forms, what is refused in one line, and that no password is shown."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from common.servers import run_gateway, write_keys

from gateway.ledger.engine import one_line, password
from gateway.ledger.opening import check, open_ledger
from gateway.ledger.target import DEFAULT_FILE, parse
from gateway.settings import SettingsError, load_settings

SECRET = "pw-LEAKMARK"


@pytest.mark.parametrize("text", ["off", "OFF"])
def test_off_is_no_ledger(text: str) -> None:
    assert parse(text) is None
    assert open_ledger(text) is None
    check(text)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("", DEFAULT_FILE),
        ("usage.db", Path("usage.db")),
        ("/var/lib/gateway/usage.sqlite3", Path("/var/lib/gateway/usage.sqlite3")),
        ("sqlite:///here/usage.db", Path("here/usage.db")),
        ("sqlite:////there/usage.db", Path("/there/usage.db")),
        (":memory:", Path(":memory:")),  # a file of that odd name: nothing is kept in memory alone
    ],
)
def test_files(text: str, file: Path) -> None:
    target = parse(text)
    assert target is not None
    assert target.file == file
    assert target.url.database == str(Path.cwd() / file)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "PostgreSQL"])
def test_postgresql(scheme: str) -> None:
    target = parse(f"{scheme}://me:{SECRET}@db:5433/usage?sslmode=require")
    assert target is not None
    assert target.file is None
    assert target.shown == "postgresql://me:***@db:5433/usage"
    assert (target.url.drivername, target.url.password) == ("postgresql+psycopg", SECRET)
    assert dict(target.url.query) == {"sslmode": "require"}


def test_the_password_may_be_in_a_file_that_changes(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_bytes(b"\xef\xbb\xbfone\r\n")
    target = parse(f"postgresql://me@db/usage?password_file={file}&sslmode=require")
    assert target is not None
    assert password(target) == "one"
    assert "password_file" not in target.url.query  # libpq does not know it
    file.write_text("two")
    assert password(target) == "two"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"mysql://me:{SECRET}@db/usage", "of another kind"),
        (f"postgresql://me:{SECRET}@db", "without a database"),
        (f"postgresql://me:{SECRET}@db:99999/usage", "odd port"),
        (f"postgresql://me:{SECRET}@db:port/usage", "cannot be read"),
        (f"postgresql://me:{SECRET}@db/usage?pasword={SECRET}", "libpq does not know"),
        ("postgresql://me@db/usage?password_file=/nowhere/pw", "/nowhere/pw"),
        ("sqlite://usage.db", "without a plain path"),
        ("sqlite:///", "without a plain path"),
        ("sqlite:///usage.db?mode=ro", "without a plain path"),
    ],
)
def test_a_value_that_cannot_be_used_is_one_line(text: str, words: str) -> None:
    for judge in (open_ledger, check):
        with pytest.raises(SettingsError) as caught:
            judge(text)
        (line,) = caught.value.lines
        assert line.startswith("GATEWAY_USAGE_DB: found ")
        assert "; wanted " in line
        assert "; fix: " in line
        assert words in line
        assert "LEAKMARK" not in line


def test_no_password_in_what_a_driver_says(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text("in-file-LEAKMARK\n")
    target = parse(
        f"postgresql://me:{SECRET}@db/u?password_file={file}&password=parameter-LEAKMARK"
    )
    assert target is not None
    said = ValueError(f"no {SECRET}, no in-file-LEAKMARK, no parameter-LEAKMARK\nsecond line")
    assert one_line(said, target) == "ValueError: no ***, no ***, no ***"


def test_the_settings_do_not_show_it() -> None:
    settings = load_settings({"GATEWAY_USAGE_DB": f"postgresql://me:{SECRET}@db/usage"})
    assert "LEAKMARK" not in repr(settings)
    assert "LEAKMARK" in settings.usage_db


def bad_file(folder: Path, kind: str) -> Path:
    """A path that no ledger can be kept at."""
    path = folder / "usage.sqlite3"
    if kind == "no folder":
        return folder / "a" / "b" / "usage.sqlite3"
    if kind == "a folder":
        path.mkdir()
    elif kind == "below a file":
        (folder / "file").write_text("")
        return folder / "file" / "usage.sqlite3"
    elif kind == "no database":
        path.write_bytes(b"something else " * 1000)
    elif kind == "torn":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE t (a)")
        connection.close()
        path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000)
    elif kind == "a newer schema":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE usage_version (version INTEGER)")
            connection.execute("INSERT INTO usage_version VALUES (2)")
        connection.close()
    elif kind == "another's table":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE usage (a)")
        connection.close()
    return path


KINDS = ["no folder", "a folder", "below a file", "no database", "torn", "a newer schema",
         "another's table"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, kind: str) -> None:
    path = bad_file(tmp_path, kind)
    for judge in (check, open_ledger):
        with pytest.raises(SettingsError) as caught:
            judge(str(path))
        (line,) = caught.value.lines
        assert line.startswith(f"GATEWAY_USAGE_DB: found {path}, which cannot be used (")
        assert "; fix: " in line


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--check"], {}),
        ([], {"GATEWAY_WORKERS": "2", "GATEWAY_VALKEY_URL": "valkey://127.0.0.1:1"}),
    ],
    ids=["check", "two workers"],
)
def test_the_process_ends_with_the_line_and_2(
    tmp_path: Path, words: list[str], settings: dict[str, str]
) -> None:
    path = bad_file(tmp_path, "no database")
    known = {"GATEWAY_API_KEYS_FILE": str(write_keys(tmp_path)), "GATEWAY_PORT": "0"}
    done = run_gateway(*words, **known, **settings, GATEWAY_USAGE_DB=str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"GATEWAY_USAGE_DB: found {path}")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder that everyone may enter, and in it this process without root's rights."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="ledger-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "usage.sqlite3").touch(mode=0o444)
        if root:
            os.seteuid(65_534)
        yield Path(name)
        if root:
            os.seteuid(0)


def test_a_file_that_may_not_be_written(nobody: Path) -> None:
    for judge in (open_ledger, check):
        with pytest.raises(SettingsError, match="readonly"):
            judge(str(nobody / "usage.sqlite3"))


@pytest.mark.skipif(os.geteuid() != 0, reason="its own folder is writable for this user")
def test_a_folder_that_may_not_be_written(nobody: Path) -> None:
    for name in ("new.sqlite3", "folder/new.sqlite3"):
        with pytest.raises(SettingsError, match="Permission denied"):
            open_ledger(str(nobody / name))
        with pytest.raises(SettingsError, match="not writable"):
            check(str(nobody / name))


def test_a_check_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check("")
    check("new/usage.db")
    assert not list(tmp_path.iterdir())


def test_the_folder_is_made_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("", "new/usage.db"):
        assert open_ledger(text) is not None
        file = Path(text) if text else DEFAULT_FILE
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        check(text)
