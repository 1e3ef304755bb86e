"""The key file and the Authorization header."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.auth import Keyring
from gateway.errors import Unauthorized
from gateway.keys import KeyFileError, digest, parse_keys, read_keys

KEY = "sk-0123456789abcdef"
GOOD = f'[[key]]\nname = "a"\nkey = "{KEY}"\n'
SECOND = '[[key]]\nname = "b"\nkey = "sk-fedcba9876543210"\n'


@pytest.mark.parametrize(
    "raw",
    [
        GOOD.encode(),
        GOOD.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.rstrip().encode(),
        f'key = [{{name = "a", key = "{KEY}"}}]'.encode(),
    ],
    ids=["lf", "crlf", "bom", "no last newline", "inline"],
)
def test_forms_of_a_good_file(raw: bytes) -> None:
    """B48."""
    assert [key.name for key in parse_keys(raw).values()] == ["a"]
    assert digest(KEY.encode()) in parse_keys(raw)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "[[key]]"),
        ("[key]\n", "[[key]]"),
        (f"{GOOD}\n[other]\n", "[[key]]"),
        ('[[key]]\nname="a"\n', "either key or sha256"),
        (GOOD + f'sha256 = "{"0" * 64}"\n', "either key or sha256"),
        ('[[key]]\nkey = "sk-0123456789"\n', "no plain name"),
        ('[[key]]\nname = "a b"\nkey = "sk-0123456789"\n', "no plain name"),
        (GOOD + SECOND.replace('"b"', '"a"'), "comes twice"),
        (GOOD + GOOD.replace('"a"', '"b"'), "are the same"),
        ('[[key]]\nname = "a"\nkey = ""\n', "8 to 512"),
        ('[[key]]\nname = "a"\nkey = "short"\n', "8 to 512"),
        ('[[key]]\nname = "a"\nkey = "with space inside"\n', "8 to 512"),
        ('[[key]]\nname = "a"\nkey = "two\\nlines-of-key"\n', "8 to 512"),
        ('[[key]]\nname = "a"\nkey = "schlüssel-12345"\n', "8 to 512"),
        ('[[key]]\nname = "a"\nkey = "sk-changeme"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "<your-key-here>"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "sk-xxxxxxxx"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "xxxxxxxx"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "sk-xxxx-xxxx"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "your-key-here"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "sk-your_api_key"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "REPLACE_ME"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "change-me-please"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "sk-............"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "placeholder"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "<any-thing>"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "password"\n', "placeholder"),
        ('[[key]]\nname = "a"\nkey = "example-key"\n', "placeholder"),
        (f"[[key]]\nname = {'[' * 50_000}\n", "not a key file"),
        (f"[[key]]\nname = {'1' * 5_000}\n", "not a key file"),
        ('[[key]]\nname = "a"\nsha256 = "abc"\n', "64 hex"),
        (GOOD + "expires = 2027-01-01T00:00:00\n", "zone"),
        (GOOD + 'expires = "soon"\n', "zone"),
        (GOOD + "models = []\n", "list of names"),
        (GOOD + "models = [1]\n", "list of names"),
        (GOOD + 'models = [""]\n', "list of names"),
        (GOOD + "tokens_per_minute = 0\n", "tokens_per_minute is not a whole number"),
        (GOOD + "color = 5\n", "unknown field 'color'"),
        (GOOD.replace('"sk', '"\x00sk'), "not valid TOML (line 3"),
        ("[[key]]\nname = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(text: str, words: str) -> None:
    with pytest.raises(KeyFileError) as caught:
        parse_keys(text.encode())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_file_that_is_not_text() -> None:
    with pytest.raises(KeyFileError, match="UTF-8"):
        parse_keys(b"\xff\xfe[")


def test_paths_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B49, B50."""
    for path, words in ((tmp_path, "is a directory"), (tmp_path / "no", "no file")):
        with pytest.raises(KeyFileError, match=words):
            read_keys(path)
    big = tmp_path / "big"
    big.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(KeyFileError, match="larger"):
        read_keys(big)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError  # root reads any mode, so the error itself is injected

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(KeyFileError, match="0444"):
        read_keys(big)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expires", "now", "valid"),
    [
        ("2027-01-31T12:00:00Z", "2027-01-31T11:59:59", True),
        ("2027-01-31T12:00:00Z", "2027-01-31T12:00:00", False),
        ("2027-01-31T12:00:00+02:00", "2027-01-31T10:00:00", False),
        ("2027-01-31", "2027-01-31T23:59:59", True),
        ("2027-01-31", "2027-02-01T00:00:00", False),
    ],
)
def test_expiry(tmp_path: Path, expires: str, now: str, valid: bool) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(GOOD + f"expires = {expires}\n")
    ring = Keyring(path, now=lambda: at(now))
    headers = [(b"authorization", f"Bearer {KEY}".encode())]
    if valid:
        assert ring.caller(headers).name == "a"
    else:
        with pytest.raises(Unauthorized, match="expired"):
            ring.caller(headers)


def test_reload_notices_a_replaced_file_and_keeps_the_last_good(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(GOOD)
    ring = Keyring(path)
    headers = [(b"authorization", b"Bearer sk-fedcba9876543210")]
    for text, known in ((GOOD + SECOND, True), ("broken", True), (GOOD, False)):
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(path)
        ring.reload_if_changed()
        if known:
            assert ring.caller(headers).name == "b"
        else:
            with pytest.raises(Unauthorized):
                ring.caller(headers)


def test_a_file_that_becomes_readable_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`chmod` after a refusal changes neither its bytes nor its time of writing."""
    path = tmp_path / "keys.toml"
    path.write_text(GOOD)
    ring = Keyring(path)
    path.write_text(GOOD + SECOND)
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError  # root reads any mode, so the error itself is injected

        patch.setattr(Path, "open", refuse)
        ring.reload_if_changed()
    path.chmod(0o444)
    ring.reload_if_changed()
    assert ring.caller([(b"authorization", b"Bearer sk-fedcba9876543210")]).name == "b"


@pytest.mark.parametrize("text", ["9999-12-31", "9999-12-31T23:59:59-12:00"])
def test_the_last_day_of_the_calendar_is_a_date_like_any_other(tmp_path: Path, text: str) -> None:
    path = tmp_path / "api_keys.toml"
    path.write_text(f'[[key]]\nname = "a"\nkey = "sk-0123456789"\nexpires = {text}\n')
    keyring = Keyring(path)
    assert keyring.caller([(b"authorization", b"Bearer sk-0123456789")]).name == "a"


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(KeyFileError, match="not readable"):
        read_keys(loop)
