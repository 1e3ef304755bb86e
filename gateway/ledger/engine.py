"""How a connection is made: SQLite so that a crash loses nothing, PostgreSQL so that silence ends.

Connecting is lazy; nothing here touches a database before it is used.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from gateway.ledger.target import Target

BUSY_S = 5  # another process that writes is waited for
# Of PostgreSQL's parameters; what stands in the URL wins. A peer that is gone without a word is
# noticed within half a minute. Without server-side prepared statements pgbouncer works, too.
QUIET_ENDS: Mapping[str, object] = {
    "connect_timeout": 5,
    "application_name": "vllm-compose-gateway",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def connector(target: Target) -> Engine:
    """An engine with one connection, for writing."""
    # A connection that broke is told to us as an error, which is logged once; not by the pool, too.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    if target.file is None:
        engine = _postgresql(target)
        event.listen(engine, "begin", _no_zombie)
        return engine
    engine = create_engine(
        target.url, pool_size=1, max_overflow=0, connect_args={"timeout": BUSY_S}
    )
    event.listen(engine, "connect", _durable)
    event.listen(engine, "begin", _begin)
    return engine


def reader(target: Target) -> Engine:
    """An engine for reports: never makes a file, never waits for a writer."""
    if target.file is None:
        return _postgresql(target)
    uri = target.url.set(
        database=f"file:{target.url.database}", query={"mode": "ro", "uri": "true"}
    )
    return create_engine(uri, connect_args={"timeout": BUSY_S})


def password(target: Target) -> str | None:
    """The password in force. Raises OSError when its file cannot be read."""
    if target.password_file is None:
        return target.url.password
    return target.password_file.read_text(encoding="utf-8-sig").strip()


def one_line(error: BaseException, target: Target) -> str:
    """What a driver said: no statement, no value, no password."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    line = next(iter(str(cause).strip().splitlines()), "")
    for secret in filter(None, (*_written(target), _in_file(target))):
        line = line.replace(secret, "***")
    return f"{type(cause).__name__}: {line[:200]}"


def _written(target: Target) -> list[str]:
    """Passwords in the URL: beside the user, or as a parameter."""
    parameter = target.url.query.get("password", ())
    return [target.url.password or "", *([parameter] if isinstance(parameter, str) else parameter)]


def _in_file(target: Target) -> str | None:
    try:
        return password(target)
    except (OSError, UnicodeDecodeError):
        return None


def _postgresql(target: Target) -> Engine:
    given = {name: value for name, value in QUIET_ENDS.items() if name not in target.url.query}
    arguments = {**given, "prepare_threshold": None}
    engine = create_engine(target.url, pool_size=1, max_overflow=0, connect_args=arguments)

    def with_password(_d: object, _r: object, _a: object, parameters: dict[str, Any]) -> None:
        if target.password_file is not None:
            parameters["password"] = password(target)

    event.listen(engine, "do_connect", with_password)
    return engine


def _durable(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    # A commit is in the file when it returns: it outlives the process. Only a power cut may take
    # the last ones, never the file's order; a sync for each would cost the disk four a second.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin(connection: Connection) -> None:
    # Who asks for the write lock halfway may be refused with no way to wait for it.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _no_zombie(connection: Connection) -> None:
    # Should this connection be lost without a word, the server must not keep our locks for hours:
    # other workers and our own next attempt wait for them. Of the transaction alone, so that a
    # pooler's connection is given back as it was.
    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '20s'")
