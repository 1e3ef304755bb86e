"""Keys: what is written is TOML that says the same when it is read again."""

import datetime
import stat
import tomllib
from pathlib import Path

import pytest
from common.checkout import Checkout
from stackctl import caller, keys
from stackctl.errors import StackError
from stackctl.layout import Layout
from stackctl.restrictions import Restrictions, parse_expiry

from gateway import keys as gateway_keys


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path)
    made.api_keys.parent.mkdir(parents=True)
    keys.write(made.api_keys, [{"name": "default", "key": "sk-first-of-all"}])
    return made


def test_a_key_is_long_and_random() -> None:
    first, second = keys.generate(), keys.generate()
    assert first.startswith("sk-")
    assert len(first) >= 43
    assert first != second


def test_add_show_list_revoke(layout: Layout) -> None:
    expires = datetime.datetime(2027, 1, 31, 12, tzinfo=datetime.UTC)
    key = keys.add(layout, "team-a", Restrictions(("default",), expires))
    assert keys.show(layout, "team-a") == key
    row = keys.listing(layout)[1]
    assert row["name"] == "team-a"
    assert row["models"] == ["default"]
    assert key not in str(row)
    keys.revoke(layout, "team-a")
    assert [row["name"] for row in keys.listing(layout)] == ["default"]
    assert stat.S_IMODE(layout.api_keys.stat().st_mode) == 0o444


def test_what_the_user_wrote_stays(layout: Layout) -> None:
    text = (
        '[[key]]\nname = "x"\nsha256 = "ab"\nexpires = 2027-01-31\n'
        'requests_per_minute = 60\n"odd name" = ["a\\"b\\\\", true, 1.5]\n'
    )
    layout.api_keys.chmod(0o644)
    layout.api_keys.write_text(text)
    before = tomllib.loads(text)["key"]
    keys.add(layout, "y", Restrictions())
    assert tomllib.loads(layout.api_keys.read_text())["key"][:1] == before


def test_the_inode_changes_so_that_no_reader_sees_half(layout: Layout) -> None:
    before = layout.api_keys.stat().st_ino
    keys.add(layout, "y", Restrictions())
    assert layout.api_keys.stat().st_ino != before
    assert [path.name for path in layout.api_keys.parent.iterdir()] == ["api_keys.toml"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "ä", 'a"b', "_ops", ".x", "-y"])
def test_bad_names(layout: Layout, name: str) -> None:
    with pytest.raises(StackError, match="key name"):
        keys.add(layout, name, Restrictions())


def test_refusals(layout: Layout) -> None:
    with pytest.raises(StackError, match="a key named default"):
        keys.add(layout, "default", Restrictions())
    with pytest.raises(StackError, match="no key named nobody"):
        keys.revoke(layout, "nobody")
    with pytest.raises(StackError, match="last key"):
        keys.revoke(layout, "default")
    keys.write(layout.api_keys, [{"name": "digest", "sha256": "00"}])
    with pytest.raises(StackError, match="only the sha256"):
        keys.show(layout, "digest")
    assert caller.usable(layout) is None


def test_names_and_keys_are_those_the_gateway_takes(layout: Layout) -> None:
    assert gateway_keys._NAME.pattern == keys.NAME.pattern
    far = parse_expiry("9000-12-31")
    for number in range(20):
        keys.add(layout, f"{number}.a_b-C", Restrictions(("default",), far))
    assert len(gateway_keys.read_keys(layout.api_keys)) == 21


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "2027-13-01", "2027-01-31T12:00:00", "9999-12-31", "9999-12-31T23:59:59-12:00"],
)
def test_bad_expiry(text: str) -> None:
    with pytest.raises(StackError, match="--expires"):
        parse_expiry(text)


def test_an_empty_file_takes_a_first_key(layout: Layout) -> None:
    layout.api_keys.unlink()
    layout.api_keys.write_text("# nothing yet\n")
    with pytest.raises(StackError, match="no key in"):
        keys.load(layout.api_keys)
    keys.add(layout, "first", Restrictions())
    assert keys.listing(layout)[0]["name"] == "first"


DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)
DEFAULT: keys.Record = {"name": "default", "key": "sk-d"}
B: keys.Record = {"name": "b", "key": "sk-b"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"name": "a", "key": "sk-a", "models": ["x"]}, B, DEFAULT], ("sk-d", None)),
        ([{**DEFAULT, "requests_per_minute": 1}, B], ("sk-b", None)),
        ([{**B, "max_concurrency": 1}, {**DEFAULT, "max_concurrency": 1}], ("sk-d", None)),
        ([{**DEFAULT, "models": ["other", "M"]}], ("sk-d", "M")),
        ([{**DEFAULT, "models": ["other"]}], None),
        ([{**DEFAULT, "models": ["M"]}, {**B, "tokens_per_minute": 9}], ("sk-b", None)),
        ([{**DEFAULT, "expires": NOW - DAY}, B], ("sk-b", None)),
        ([{**DEFAULT, "expires": NOW + DAY}, B], ("sk-b", None)),
        ([{**DEFAULT, "expires": NOW.date()}], ("sk-d", None)),
        ([{**DEFAULT, "expires": NOW.date() - DAY}], None),
        ([{"name": "c", "sha256": "00" * 32}], None),
    ],
)
def test_which_key_the_canary_asks_with(
    layout: Layout, records: list[keys.Record], expected: tuple[str, str | None] | None
) -> None:
    keys.write(layout.api_keys, records)
    found = caller.usable(layout, ["M", "default"])
    assert found == (caller.Caller(*expected) if expected else None)


def test_a_new_key_alone_is_the_output(checkout: Checkout) -> None:
    """Programs take the key from there; that it needs a moment is said beside it."""
    done = checkout.stack("key", "add", "team-a")
    assert done.stdout == checkout.stack("key", "show", "team-a").stdout
    assert done.stderr == "made team-a; it works within two seconds\n"
