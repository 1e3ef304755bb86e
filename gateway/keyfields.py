"""The fields of one [[key]] table: each as the file has it → checked, or one clear line.

Lines name the key by its name and never quote a key, a digest or another secret.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta

_KEY = re.compile(r"[!-~]{8,512}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
# Whole values only, since a random token may spell any of these words somewhere: one in angle
# brackets, one of such words alone, one of a single character over and over.
_PLACEHOLDER = re.compile(
    r"<.*>"
    r"|(?:(?:sk|change|replace|me|this|placeholder|insert|put|my|your|api|key|token|secret"
    r"|password|example|here|please|x|\.|\*)[-_]?)+"
    r"|(?:sk-)?(.)\1*",
    re.IGNORECASE,
)
# Limits and their largest values: far beyond what one host serves, and small enough that sums of
# them stay exact wherever they are counted. scripts/stackctl/restrictions.py has the same.
LARGEST = {
    "requests_per_minute": 10_000_000,
    "tokens_per_minute": 10_000_000_000,
    "max_concurrency": 100_000,
}

Table = Mapping[str, object]


class KeyFileError(Exception):
    """The file cannot be used; the message is one line and holds no key."""


def digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def digest_of(name: str, table: Table) -> bytes:
    """The SHA-256 of the key, which is there in full or as its digest."""
    if ("key" in table) == ("sha256" in table):
        raise KeyFileError(f"key {name!r} needs either key or sha256; fix: give one of them")
    if "sha256" in table:
        return _hexed(name, table["sha256"])
    value = table["key"]
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise KeyFileError(
            f"key {name!r}: its value is not 8 to 512 printable characters without spaces; "
            "fix: make one with `scripts/stack key add NAME`"
        )
    if _PLACEHOLDER.fullmatch(value):
        raise KeyFileError(
            f"key {name!r}: its value is a placeholder; "
            "fix: make one with `scripts/stack key add NAME`"
        )
    return digest(value.encode("ascii"))


def _hexed(name: str, value: object) -> bytes:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise KeyFileError(
            f"key {name!r}: sha256 is not 64 hex digits; fix: `sha256sum` of the key"
        )
    return bytes.fromhex(value)


def expiry(name: str, table: Table) -> datetime | None:
    """The moment from which the key is not valid; aware."""
    value = table.get("expires")
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        if value == date.max:  # there is no day after it
            return datetime.max.replace(tzinfo=UTC)
        return datetime.combine(value + timedelta(days=1), time(), UTC)
    if value is None:
        return None
    raise KeyFileError(
        f"key {name!r}: expires is neither a date nor a time with zone; "
        "fix: expires = 2027-01-31T00:00:00Z"
    )


def models(name: str, table: Table) -> frozenset[str] | None:
    """The models it may use; None means all."""
    value = table.get("models")
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(_is_name(each) for each in value):
        raise KeyFileError(f'key {name!r}: models is not a list of names; fix: models = ["name"]')
    return frozenset(value)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.strip() == value != ""


def limit(name: str, table: Table, field: str) -> int | None:
    """One of LARGEST's limits; None means no limit."""
    value = table.get(field)
    if value is None:
        return None
    largest = LARGEST[field]
    # bool is an int to Python; `true` requests per minute are a mistake.
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        raise KeyFileError(
            f"key {name!r}: {field} is not a whole number from 1 to {largest}; "
            f"fix: {field} = 60, or remove it for no limit"
        )
    return value
