"""The schema, the same in SQLite and PostgreSQL, and the two statements that write it."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, Text
from sqlalchemy import inspect as look
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.dml import ReturningInsert as Claim

VERSION = 1
SCHEMA = MetaData()

# `hour`: Unix time of its start, so that every database and every program reads it alike.
LABELS = ("hour", "key", "model", "route", "outcome")
COUNTS = ("requests", "prompt_tokens", "completion_tokens", "estimated_requests")
USAGE = Table(
    "usage",
    SCHEMA,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, Text, primary_key=True) for name in LABELS[1:]),
    *(Column(name, BigInteger, nullable=False) for name in COUNTS),
    sqlite_with_rowid=False,
)
# The last batch of each process that is in. `seen`: Unix time.
WRITERS = Table(
    "usage_writers",
    SCHEMA,
    Column("writer", Text, primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
)
SCHEMA_VERSION = Table(
    "usage_version", SCHEMA, Column("version", Integer, primary_key=True, autoincrement=False)
)


class SchemaError(Exception):
    """The database has a schema that this version must not touch; the message says which."""


def upsert(dialect: str) -> Insert:
    """Add increments to rows, which are made when they are new."""
    insert = _insert(dialect)(USAGE)
    sums = {name: USAGE.c[name] + insert.excluded[name] for name in COUNTS}
    return insert.on_conflict_do_update(index_elements=LABELS, set_=sums)


def claim(dialect: str) -> Claim[tuple[int]]:
    """Note a batch as being in; returns no row when it is in already.

    One statement, so that it also waits for a transaction of ours whose connection was lost but
    which the server has not ended yet.
    """
    insert = _insert(dialect)(WRITERS)
    new = {name: insert.excluded[name] for name in ("batch", "seen")}
    later = WRITERS.c.batch < insert.excluded.batch
    noted = insert.on_conflict_do_update(index_elements=["writer"], set_=new, where=later)
    return noted.returning(WRITERS.c.batch)


def is_there(connection: Connection) -> bool:
    """Whether the schema is there and ours. Raises SchemaError."""
    found = set(look(connection).get_table_names()) & set(SCHEMA.tables)
    if SCHEMA_VERSION.name in found:
        version = connection.scalar(SCHEMA_VERSION.select())
        if version != VERSION:
            raise SchemaError(f"schema version {version}, where this gateway knows {VERSION}")
    elif found:
        raise SchemaError(f"a table {min(found)} that is not the gateway's")
    return bool(found)


def make(connection: Connection) -> None:
    SCHEMA.create_all(connection)
    connection.execute(SCHEMA_VERSION.insert().values(version=VERSION))


def _insert(dialect: str) -> type[sqlite.Insert] | type[postgresql.Insert]:
    return sqlite.Insert if dialect == "sqlite" else postgresql.Insert
