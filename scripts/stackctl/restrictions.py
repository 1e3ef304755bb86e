"""What bounds a new key: options of `key add` → fields of its table, or one clear line.

The gateway judges the same fields when it reads the file (gateway/keyfields.py); a test holds the
two together.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stackctl.errors import USAGE, StackError, problem

# Limits of a key and their largest values.
LARGEST = {
    "requests_per_minute": 10_000_000,
    "tokens_per_minute": 10_000_000_000,
    "max_concurrency": 100_000,
}
LAST_YEAR = 9000  # later ones come to nothing when a zone or a day is added
PLAIN = re.compile(r"[0-9]{1,12}")

Moment = datetime.datetime | datetime.date


@dataclass(frozen=True)
class Restrictions:
    """`models` empty = all, `expires` None = never, a limit that is not there = none."""

    models: tuple[str, ...] = ()
    expires: Moment | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    def fields(self) -> dict[str, object]:
        """As they stand in the file."""
        models = {"models": list(self.models)} if self.models else {}
        expires = {} if self.expires is None else {"expires": self.expires}
        return {**models, **expires, **self.limits}


def option(limit: str) -> str:
    return "--" + limit.replace("_", "-")


def of_options(given: Mapping[str, str | None]) -> Restrictions:
    """Of the texts by name of their field; None: not given. Raises StackError."""
    models, expires = given["models"], given["expires"]
    limits = {
        name: parse_limit(name, text) for name in LARGEST if (text := given[name]) is not None
    }
    return Restrictions(
        () if models is None else parse_models(models),
        None if expires is None else parse_expiry(expires),
        limits,
    )


def parse_limit(name: str, text: str) -> int:
    largest = LARGEST[name]
    if PLAIN.fullmatch(text) and 1 <= int(text) <= largest:
        return int(text)
    wanted = f"a whole number from 1 to {largest}, in plain digits"
    fix = f"for example {option(name)} 60, or leave it out for no limit"
    raise problem(f"{option(name)} {text[:80]!r}", wanted, fix, USAGE)


def parse_models(text: str) -> tuple[str, ...]:
    """Names with commas between them. An empty one would quietly allow none, or all."""
    names = tuple(name.strip() for name in text.split(","))
    if all(names):
        return tuple(dict.fromkeys(names))
    wanted = "names of models, comma between them"
    fix = "for example --models default, or leave it out for all models"
    raise problem(f"--models {text[:80]!r}", wanted, fix, USAGE)


def parse_expiry(text: str) -> datetime.datetime | datetime.date:
    """An RFC 3339 date or time. Raises StackError."""
    when = _moment(text)
    if when.year > LAST_YEAR:
        fix = "leave --expires out for a key that stays"
        raise problem(f"--expires {text}", f"a year up to {LAST_YEAR}", fix, USAGE)
    return when


def _moment(text: str) -> datetime.datetime | datetime.date:
    try:
        if len(text) == len("2027-01-31"):
            return datetime.date.fromisoformat(text)
        when = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise _bad_expiry(text) from error
    if when.tzinfo is None:
        raise _bad_expiry(text)
    return when


def _bad_expiry(text: str) -> StackError:
    wanted = "a date, or a time with its zone"
    return problem(f"--expires {text}", wanted, "2027-01-31 or 2027-01-31T12:00:00Z", USAGE)
