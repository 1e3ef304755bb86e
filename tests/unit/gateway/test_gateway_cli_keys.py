"""Key files that the CLI writes are files that the gateway takes."""

from __future__ import annotations

import datetime
import random
import string
from pathlib import Path

import pytest
from stackctl import keys as cli
from stackctl import restrictions
from stackctl.errors import StackError
from stackctl.layout import Layout
from stackctl.restrictions import Restrictions, parse_expiry

from gateway import keyfields
from gateway.keys import KeyFileError, digest, parse_keys, read_keys

NAMES = ("default", "a", "9", "team-b", "team.c_1", "CI", "x" * 64, "true", "sha256")
URL_SAFE = string.ascii_letters + string.digits + "-_"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path)
    made.api_keys.parent.mkdir(parents=True)
    made.api_keys.write_text("")
    return made


def test_every_key_that_the_cli_adds_is_taken(layout: Layout) -> None:
    values = {name: cli.add(layout, name, Restrictions()) for name in NAMES}
    found = read_keys(layout.api_keys)
    assert {name: found[digest(value.encode())].name for name, value in values.items()} == {
        name: name for name in NAMES
    }


@pytest.mark.parametrize("name", ["", ".a", "-a", "_a", "a b", "x" * 65, "ü", "a\n"])
def test_a_name_that_the_gateway_refuses_is_refused_by_the_cli(layout: Layout, name: str) -> None:
    with pytest.raises(StackError):
        cli.add(layout, name, Restrictions())
    assert layout.api_keys.read_text() == ""


@pytest.mark.parametrize("expires", ["2027-01-31", "2027-01-31T12:00:00Z", "9000-12-31"])
def test_restrictions_of_the_cli_are_taken(layout: Layout, expires: str) -> None:
    limits = Restrictions(("default", 'org/"quoted"\\'), parse_expiry(expires))
    value = cli.add(layout, "limited", limits)
    cli.add(layout, "free", Restrictions())
    cli.revoke(layout, "free")
    key = read_keys(layout.api_keys)[digest(value.encode())]
    assert key.models == {"default", 'org/"quoted"\\'}
    assert key.expires is not None
    assert key.expires > datetime.datetime(2027, 1, 31, tzinfo=datetime.UTC)


def accepts(value: str) -> bool:
    return digest(value.encode()) in parse_keys(f"[[key]]\nname='a'\nkey='{value}'\n".encode())


@pytest.mark.parametrize(
    "word", ["xxxx", "secret", "Your_", "your-", "example", "password", "changeme", "ReplaceMe"]
)
def test_a_random_token_with_a_word_in_it_is_a_key(word: str) -> None:
    """What base64 can spell by chance, at either end and in the middle."""
    token = "".join(random.Random(word).choices(URL_SAFE, k=43 - len(word)))  # noqa: S311
    assert all(accepts(f"sk-{token[:cut]}{word}{token[cut:]}") for cut in (0, 17, len(token)))


def test_generated_keys_are_taken() -> None:
    assert all(accepts(cli.generate()) for _ in range(500))


LIMITS = sorted(restrictions.LARGEST)


def gateway_takes(line: str) -> bool:
    try:
        parse_keys(f"[[key]]\nname='a'\nkey='sk-0123456789'\n{line}\n".encode())
    except KeyFileError:
        return False
    return True


def cli_takes(name: str, text: str) -> bool:
    try:
        restrictions.parse_limit(name, text)
    except StackError:
        return False
    return True


def test_both_have_the_same_limits() -> None:
    assert restrictions.LARGEST == keyfields.LARGEST


@pytest.mark.parametrize("name", LIMITS)
def test_limits_that_the_cli_writes_are_limits_of_the_key(layout: Layout, name: str) -> None:
    largest = restrictions.LARGEST[name]
    given = {"models": None, "expires": None, **dict.fromkeys(LIMITS), name: str(largest)}
    value = cli.add(layout, "limited", restrictions.of_options(given))
    key = read_keys(layout.api_keys)[digest(value.encode())]
    assert {each: getattr(key, each) for each in LIMITS} == {**dict.fromkeys(LIMITS), name: largest}
    assert cli.listing(layout)[0][name] == largest


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(
    "text",
    [
        *("1", "60", "max", "max+1", "0", "-1", "true", "false", "1.0", "1e3", "inf", "nan"),
        *("", " ", '"60"', "+", "[1]", "0x10x", "9" * 30),
    ],
)
def test_what_one_refuses_the_other_refuses(name: str, text: str) -> None:
    largest = restrictions.LARGEST[name]
    written = {"max": str(largest), "max+1": str(largest + 1)}.get(text, text)
    assert cli_takes(name, written) == gateway_takes(f"{name} = {written}")
    assert cli_takes(name, written) == (text in {"1", "60", "max"})


@pytest.mark.parametrize("text", ["", " ", ",", "a,", ",a", "a,,b"])
def test_a_list_of_models_with_a_hole_is_no_list(text: str) -> None:
    with pytest.raises(StackError, match="--models"):
        restrictions.parse_models(text)
    inside = ", ".join(f'"{part.strip()}"' for part in text.split(","))
    assert not gateway_takes(f"models = [{inside}]")


def test_an_empty_date_is_no_date() -> None:
    given = {"models": None, "expires": "", **dict.fromkeys(LIMITS)}
    with pytest.raises(StackError, match="--expires"):
        restrictions.of_options(given)
