"""From the setting to a ledger: what cannot work is said at the start, in one line.

A SQLite file is opened at once. PostgreSQL may be down and come later, and a full disk may be
freed: neither stops the gateway, the ledger says so in the log and keeps on trying.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from gateway.ledger.engine import password
from gateway.ledger.ledger import Ledger
from gateway.ledger.store import Batch, Store
from gateway.ledger.tables import SchemaError
from gateway.ledger.target import DEFAULT_FILE, Target, parse, refusal

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Of SQLite's results: those that waiting does not mend.
UNUSABLE = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
WANTED = "a SQLite file in a folder that the gateway may write to"
FIX = "correct the path or its owner, move away what is no ledger, or set another file or off"
NOTHING = Batch(0, {})  # writing it connects and makes the schema


def open_ledger(text: str) -> Ledger | None:
    """The ledger of a GATEWAY_USAGE_DB value, None for `off`. Raises SettingsError."""
    target = parse(text)
    if target is None:
        return None
    store = Store(target)
    if target.file is not None:
        _try(store, target.file)
    else:
        _check_password(target)
    return Ledger(store)


def check(text: str) -> None:
    """Judge a GATEWAY_USAGE_DB value; makes no file. Raises SettingsError."""
    target = parse(text)
    if target is None:
        return
    if target.file is None:
        _check_password(target)
    elif target.file.exists():
        store = Store(target)
        _try(store, target.file)
        store.close()
    else:
        _check_folder(target.file)


def _try(store: Store, file: Path) -> None:
    try:
        store.write(NOTHING)
    except SchemaError as error:
        raise _unusable(file, str(error)) from None
    except OSError as error:
        if error.errno not in FULL:
            raise _unusable(file, error.strerror or type(error).__name__) from None
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # The low byte is the kind, what is above it the detail.
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in UNUSABLE:
            raise _unusable(file, str(cause)) from None


def _check_folder(file: Path) -> None:
    """Whether `file`, which is not there, could be made."""
    folder = file.parent
    if not folder.exists():
        folder = next(p for p in folder.absolute().parents if p.is_dir() or file != DEFAULT_FILE)
    if not folder.is_dir():
        raise _unusable(file, f"{folder} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise _unusable(file, f"the folder {folder} is not writable")


def _check_password(target: Target) -> None:
    try:
        password(target)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise refusal(
            f"password_file={target.password_file}, which cannot be read ({reason})",
            "create it, mode 0444 inside a folder of mode 0700",
            "a file with the password",
        ) from None


def _unusable(file: Path, why: str) -> Exception:
    return refusal(f"{file}, which cannot be used ({why})", FIX, WANTED)
