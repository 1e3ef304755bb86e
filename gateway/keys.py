"""The API key file: bytes → keys by digest, or one clear line that names no value.

[[key]]
name = "default"                     # in logs and metrics, never the key itself
key = "sk-…"                         # or: sha256 = "…" (of the key, hex)
expires = 2027-01-31T00:00:00Z       # optional; a plain date counts to its end, UTC
models = ["default"]                 # optional allow-list
requests_per_minute = 60             # optional, in any 60 seconds
tokens_per_minute = 100_000          # optional, prompt and completion together
max_concurrency = 8                  # optional, running or waiting at one time
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gateway import keyfields
from gateway.keyfields import LARGEST, KeyFileError, digest

__all__ = ["Key", "KeyFileError", "Keys", "digest", "parse_keys", "read_keys"]

# Far above any sensible number of keys, far below what would hurt to read at each change.
MAX_FILE = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIELDS = {"name", "key", "sha256", "expires", "models", *LARGEST}


@dataclass(frozen=True, slots=True)
class Key:
    """One caller. `expires`: aware. None means: never, all models, no such limit."""

    name: str
    digest: bytes
    expires: datetime | None = None
    models: frozenset[str] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrency: int | None = None


Keys = dict[bytes, Key]  # by SHA-256 digest of the key's bytes


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
    limits = [keyfields.limit(name, table, field) for field in LARGEST]
    expires, models = keyfields.expiry(name, table), keyfields.models(name, table)
    return Key(name, keyfields.digest_of(name, table), expires, models, *limits)


def _check_fields(name: str, table: dict[str, object]) -> None:
    unknown = sorted(set(table) - _FIELDS)
    if unknown:
        raise KeyFileError(f"key {name!r} has an unknown field {unknown[0]!r}; fix: remove it")


def _where(error: tomllib.TOMLDecodeError) -> str:
    """The place of a TOML error without the text around it, which may be a key."""
    found = re.search(r"line \d+, column \d+|end of document", str(error))
    return found.group() if found else "somewhere"
