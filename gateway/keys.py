"""The API key file: bytes → keys by digest, or one clear line that names no value.

[[key]]
name = "default"                     # in logs and metrics, never the key itself
key = "sk-…"                         # or: sha256 = "…" (of the key, hex)
expires = 2027-01-31T00:00:00Z       # optional; a plain date counts to its end, UTC
models = ["default"]                 # optional allow-list
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

# Far above any sensible number of keys, far below what would hurt to read twice a second.
MAX_FILE = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
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
_LIMITS = ("requests_per_minute", "tokens_per_minute", "max_concurrency")
_FIELDS = {"name", "key", "sha256", "expires", "models"}


class KeyFileError(Exception):
    """The file cannot be used; the message is one line and holds no key."""


@dataclass(frozen=True, slots=True)
class Key:
    """One caller. `expires`: aware; `models`: None means all."""

    name: str
    digest: bytes
    expires: datetime | None = None
    models: frozenset[str] | None = None


Keys = dict[bytes, Key]  # by SHA-256 digest of the key's bytes


def digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def read_keys(path: Path) -> Keys:
    """Keys of a file. Raises KeyFileError for a file that is missing, unreadable or wrong."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise KeyFileError(
            f"{path}: found no file; fix: create it, for example with `make init`"
        ) from None
    except IsADirectoryError:
        raise KeyFileError(
            f"{path}: is a directory (made when a missing file was mounted); "
            "fix: remove it and create the file, for example with `make init`"
        ) from None
    except PermissionError:
        raise KeyFileError(
            f"{path}: not readable for this user; fix: mode 0444 for the file inside a "
            "0700 folder, `chmod 0444`"
        ) from None
    except OSError as error:
        raise KeyFileError(
            f"{path}: not readable ({error.strerror}); fix: make it a plain file"
        ) from None
    if len(raw) > MAX_FILE:
        raise KeyFileError(f"{path}: larger than {MAX_FILE} bytes; fix: keep only [[key]] tables")
    try:
        return parse_keys(raw)
    except KeyFileError as error:
        raise KeyFileError(f"{path}: {error}") from None


def parse_keys(raw: bytes) -> Keys:
    """Keys of a file's bytes (UTF-8, BOM and CRLF tolerated)."""
    try:
        text = raw.decode("utf-8-sig")
        document = tomllib.loads(text.replace("\r\n", "\n"))
    except UnicodeDecodeError:
        raise KeyFileError("not UTF-8 text; fix: save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise KeyFileError(f"not valid TOML ({_where(error)}); fix that line") from None
    except (ValueError, RecursionError):  # a number or a nesting beyond what Python reads
        raise KeyFileError("not a key file; fix: keep only [[key]] tables") from None
    tables = document.get("key")
    if set(document) - {"key"} or not isinstance(tables, list) or not tables:
        raise KeyFileError(
            "found no [[key]] table alone; fix: add one with `scripts/stack key add NAME`"
        )
    return _by_digest([_key(number, table) for number, table in enumerate(tables, 1)])


def _by_digest(keys: list[Key]) -> Keys:
    names: set[str] = set()
    found: Keys = {}
    for key in keys:
        if key.name in names:
            raise KeyFileError(f"name {key.name!r} comes twice; fix: give each key its own name")
        if key.digest in found:
            raise KeyFileError(
                f"keys {found[key.digest].name!r} and {key.name!r} are the same; fix: renew one"
            )
        names.add(key.name)
        found[key.digest] = key
    return found


def _key(number: int, table: object) -> Key:
    if not isinstance(table, dict):
        raise KeyFileError(f"key {number} is not a table; fix: write [[key]]")
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise KeyFileError(f'key {number} has no plain name; fix: name = "letters, digits, . _ -"')
    _check_fields(name, table)
    return Key(name, _digest_of(name, table), _expiry(name, table), _models(name, table))


def _check_fields(name: str, table: dict[str, object]) -> None:
    limits = [limit for limit in _LIMITS if limit in table]
    if limits:
        raise KeyFileError(
            f"key {name!r} sets {limits[0]}, which this version does not enforce; fix: remove it"
        )
    unknown = sorted(set(table) - _FIELDS)
    if unknown:
        raise KeyFileError(f"key {name!r} has an unknown field {unknown[0]!r}; fix: remove it")


def _digest_of(name: str, table: dict[str, object]) -> bytes:
    if ("key" in table) == ("sha256" in table):
        raise KeyFileError(f"key {name!r} needs either key or sha256; fix: give one of them")
    if "sha256" in table:
        hexed = table["sha256"]
        if not isinstance(hexed, str) or not _SHA256.fullmatch(hexed):
            raise KeyFileError(
                f"key {name!r}: sha256 is not 64 hex digits; fix: `sha256sum` of the key"
            )
        return bytes.fromhex(hexed)
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


def _expiry(name: str, table: dict[str, object]) -> datetime | None:
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


def _models(name: str, table: dict[str, object]) -> frozenset[str] | None:
    value = table.get("models")
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise KeyFileError(f'key {name!r}: models is not a list of names; fix: models = ["name"]')
    return frozenset(value)


def _where(error: tomllib.TOMLDecodeError) -> str:
    """The place of a TOML error without the text around it, which may be a key."""
    found = re.search(r"line \d+, column \d+|end of document", str(error))
    return found.group() if found else "somewhere"
