"""API keys in secrets/gateway/api_keys.toml. The gateway rereads the file within two seconds.

The file stays valid TOML and is replaced in one step; comments in it are not kept.
"""

import datetime
import hashlib
import re
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path

from stackctl import envfile
from stackctl.errors import USAGE, problem
from stackctl.layout import Layout
from stackctl.restrictions import LARGEST, Restrictions

HEADER = (
    "# API keys. Written by scripts/stack key add/revoke; see secrets/README.md for the fields.\n"
)
FILE_MODE = 0o444  # readable for the gateway's user in its container; the folder above is 0700
KEY_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as in gateway/keys.py
DEFAULT_NAME = "default"

Record = Mapping[str, object]


def generate() -> str:
    return f"sk-{secrets.token_hex(KEY_BYTES)}"


def load(path: Path) -> list[Record]:
    """The records as they stand. Raises StackError when the file cannot be used."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise problem(f"no {_short(path)}", "the API keys", "make init") from error
    except IsADirectoryError as error:
        fix = f"rmdir {_short(path)} && make init"
        raise problem(f"a folder at {_short(path)}", "a file", fix) from error
    except PermissionError as error:
        raise problem(
            f"{_short(path)} unreadable", "mode 0444", f"chmod 444 {_short(path)}"
        ) from error
    except UnicodeDecodeError as error:
        raise problem(f"{_short(path)} is not UTF-8", "a TOML text", _repair(path)) from error
    return parse(text, path)


def parse(text: str, path: Path) -> list[Record]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise problem(f"{_short(path)} broken: {error}", "TOML", _repair(path)) from error
    records = data.get("key", [])
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        raise problem(f"{_short(path)} without [[key]] tables", "[[key]] tables", _repair(path))
    if not records:
        raise problem(f"no key in {_short(path)}", "at least one", "scripts/stack key add default")
    return records


def _repair(path: Path) -> str:
    return f"correct it, or remove it and make init ({_short(path)})"


def _short(path: Path) -> str:
    return "/".join(path.parts[-3:])


def add(layout: Layout, name: str, limits: Restrictions) -> str:
    """Add a key and return it. Raises StackError for a name that is taken or unusable."""
    if not NAME.fullmatch(name):
        wanted = "a letter or digit, then up to 63 of a-z A-Z 0-9 - _ ."
        raise problem(f"key name {name!r}", wanted, "another name", USAGE)
    records = _load_or_empty(layout.api_keys)
    if any(record.get("name") == name for record in records):
        fix = f"another name, or scripts/stack key show {name}"
        raise problem(f"a key named {name}", "a new name", fix)
    key = generate()
    write(layout.api_keys, [*records, {"name": name, "key": key, **limits.fields()}])
    return key


def _load_or_empty(path: Path) -> list[Record]:
    """Like load, but a file that holds no key yet is a good start for `add`."""
    try:
        empty = not tomllib.loads(path.read_text(encoding="utf-8")).get("key")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        empty = False
    return [] if empty else load(path)


def revoke(layout: Layout, name: str) -> None:
    """Remove a key. The last one stays: a gateway without keys would refuse to start."""
    records = load(layout.api_keys)
    _find(records, name)
    left = [record for record in records if record.get("name") != name]
    if not left:
        raise problem(f"{name} is the last key", "one key left", "scripts/stack key add NAME first")
    write(layout.api_keys, left)


def show(layout: Layout, name: str) -> str:
    """The key itself. Raises StackError when only its digest is stored."""
    key = _find(load(layout.api_keys), name).get("key")
    if isinstance(key, str):
        return key
    raise problem(f"only the sha256 of {name}", "the key itself", "revoke it and add a new one")


def _find(records: list[Record], name: str) -> Record:
    for record in records:
        if record.get("name") == name:
            return record
    known = ", ".join(str(record.get("name")) for record in records)
    raise problem(f"no key named {name}", f"one of {known}", "scripts/stack key list", USAGE)


def listing(layout: Layout) -> list[dict[str, object]]:
    """All keys without their secrets: name, sha256, models, expires (text), each limit; or null."""
    return [_public(record) for record in load(layout.api_keys)]


def _public(record: Record) -> dict[str, object]:
    key = record.get("key")
    digest = hashlib.sha256(key.encode()).hexdigest() if isinstance(key, str) else None
    expires = record.get("expires")
    return {
        "name": record.get("name"),
        "sha256": digest or record.get("sha256"),
        "models": record.get("models"),
        "expires": None if expires is None else str(expires),
        **{field: record.get(field) for field in LARGEST},
    }


def write(path: Path, records: list[Record]) -> None:
    body = "\n".join(_table(record) for record in records)
    envfile.write_atomically(path, f"{HEADER}\n{body}", FILE_MODE)


def _table(record: Record) -> str:
    lines = [f"{_name(name)} = {_toml(value)}\n" for name, value in record.items()]
    return "[[key]]\n" + "".join(lines)


def _name(name: str) -> str:
    return name if NAME.fullmatch(name) and "." not in name else _quoted(name)


def _toml(value: object) -> str:
    """One value as TOML. Inline forms only, which TOML allows for everything a key can hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_name(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    plain = (escapes.get(c) or (f"\\u{ord(c):04x}" if c < " " or c == "\x7f" else c) for c in text)
    return '"' + "".join(plain) + '"'
