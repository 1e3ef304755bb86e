"""GATEWAY_USAGE_DB: a file, a PostgreSQL URL or `off`, as a checked value. Pure.

No password reaches an error line: of a URL only scheme, user, host and database are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from gateway.settings import SettingsError

NAME = "GATEWAY_USAGE_DB"
DEFAULT_FILE = Path(".run/usage/usage.sqlite3")
OFF = "off"
WANTED = "a file, postgresql://USER@HOST/DATABASE, or off"
POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
PASSWORD_FILE = "password_file"  # noqa: S105 - a URL parameter's name


@dataclass(frozen=True)
class Target:
    """Where the ledger lies. `file`: of SQLite; else `url`, whose password may be in a file that
    is read at each connect, so that a new password needs no restart."""

    url: URL
    file: Path | None = None
    password_file: Path | None = None

    @property
    def shown(self) -> str:
        """For people and logs: no password, no parameters."""
        if self.file is not None:
            return str(self.file)
        return self.url.set(drivername="postgresql", password=None, query={}).render_as_string()


def parse(text: str) -> Target | None:
    """The target of a setting's value; "" is the default file, None is `off`. Raises
    SettingsError."""
    if text.lower() == OFF:
        return None
    if "://" not in text:
        return of_file(Path(text) if text else DEFAULT_FILE)
    scheme, _, rest = text.partition("://")
    if scheme.lower() == "sqlite":  # sqlite:///relative, sqlite:////absolute
        if not rest.startswith("/") or len(rest) < 2 or "?" in rest:
            raise refusal("a sqlite:// URL without a plain path", "write the path alone")
        return of_file(Path(rest[1:]))
    if scheme.lower() not in POSTGRESQL:
        raise refusal("a URL of another kind", "choose one of these", WANTED)
    return _of_url(f"postgresql+psycopg://{rest}")


def of_file(file: Path) -> Target:
    return Target(URL.create("sqlite", database=str(file.absolute())), file)


def refusal(found: str, fix: str, wanted: str = WANTED) -> SettingsError:
    """The one line of a value that cannot be used."""
    return SettingsError([f"{NAME}: found {found}; wanted {wanted}; fix: {fix}"])


def _of_url(text: str) -> Target:
    fix = "encode odd characters of user and password as %XX"
    try:
        url = make_url(text)
        port = url.port
    except (ArgumentError, ValueError):
        raise refusal("a postgresql:// URL that cannot be read", fix) from None
    file = url.query.get(PASSWORD_FILE, "")
    url = url.difference_update_query([PASSWORD_FILE])
    target = Target(url, None, Path(file) if isinstance(file, str) and file else None)
    if not url.database or not 0 < (port or 5432) < 65_536:
        raise refusal(f"{target.shown}, without a database or with an odd port", "complete it")
    _check_options(target)
    return target


def _check_options(target: Target) -> None:
    """libpq's own judgement of the parameters behind `?`."""
    # Only here: 9 MB that a ledger in SQLite has no use for.
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    given: dict[str, Any] = {n: v for n, v in target.url.query.items() if isinstance(v, str)}
    try:
        make_conninfo("", **given)
    except ProgrammingError:
        found = f"{target.shown} with a parameter that libpq does not know"
        raise refusal(found, "correct what follows the question mark") from None
