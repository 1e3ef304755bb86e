"""Writes batches, each exactly once. Blocking: it runs in a thread, one call at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, text

from gateway.ledger import tables
from gateway.ledger.engine import connector, one_line
from gateway.ledger.target import DEFAULT_FILE, Target

Labels = tuple[int, str, str, str, str]  # hour (Unix time of its start), key, model, route, outcome
Rows = Mapping[Labels, list[int]]  # requests, prompt and completion tokens, estimated requests

PATIENCE_S = 90 * 86_400  # a writer that was silent for so long has ended
SCHEMA_LOCK = 0x76_6C_6C_6D  # of PostgreSQL: one process makes the tables
LONGEST = 255  # characters of a label: an index entry has an end


@dataclass(frozen=True)
class Batch:
    """Increments that go in together. Retried as it is until its fate is known."""

    number: int
    rows: Rows


class Store:
    """One process' way into the database."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._engine = connector(target)
        self._writer = secrets.token_hex(8)
        self._prepared = False
        self._inode: int | None = None
        self._claim = tables.claim(self._engine.dialect.name)
        self._upsert = tables.upsert(self._engine.dialect.name)

    def write(self, batch: Batch) -> None:
        """Bring the increments in unless they are in. Raises whatever the driver raises; then the
        next call connects anew."""
        try:
            self._prepare()
            if batch.rows:
                with self._engine.begin() as connection:
                    self._bring_in(connection, batch)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the database; a later write connects again."""
        self._prepared = False
        self._engine.dispose()

    def describe(self, error: BaseException) -> str:
        """One short line for the log."""
        return one_line(error, self._target)

    def _bring_in(self, connection: Connection, batch: Batch) -> None:
        mine = {"writer": self._writer, "batch": batch.number, "seen": int(time.time())}
        if connection.execute(self._claim, mine).first() is not None:
            connection.execute(self._upsert, parameters(batch.rows))

    def _prepare(self) -> None:
        """Connect and make the schema, once for each connection; also when the file was moved."""
        file = self._target.file
        if self._prepared and (file is None or _inode(file) == self._inode):
            return
        self.close()
        if file is not None:
            make_file(file)
        with self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})"))
            if not tables.is_there(connection):
                tables.make(connection)
            old = tables.WRITERS.c.seen < int(time.time()) - PATIENCE_S
            connection.execute(tables.WRITERS.delete().where(old))
        self._inode = _inode(file) if file else None
        self._prepared = True


def parameters(rows: Rows) -> list[dict[str, str | int]]:
    """Rows as statement parameters, with labels that every database takes; sorted, since two
    writers that lock the same rows in different order would stop each other."""
    merged: dict[Labels, list[int]] = {}
    for labels, counts in rows.items():
        hour, key, model, route, outcome = labels
        place = (hour, _plain(key), _plain(model), _plain(route), _plain(outcome))
        merged[place] = [a + b for a, b in zip(merged.get(place, [0] * 4), counts, strict=True)]
    names = (*tables.LABELS, *tables.COUNTS)
    return [
        dict(zip(names, (*place, *counts), strict=True)) for place, counts in sorted(merged.items())
    ]


def make_file(file: Path) -> None:
    """The file and its folder, for this user alone; of the default path all folders. Raises
    OSError."""
    if not file.parent.is_dir():
        file.parent.mkdir(mode=0o700, parents=file == DEFAULT_FILE)
    if not file.exists():
        file.touch(mode=0o600)


def _plain(label: str) -> str:
    """Printable, since PostgreSQL takes no NUL and no lone surrogate; and of bounded length."""
    return (label if label.isprintable() else ascii(label)[1:-1])[:LONGEST]


def _inode(file: Path) -> int | None:
    try:
        return file.stat().st_ino
    except OSError:
        return None
