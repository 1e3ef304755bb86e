"""`python -m gateway.ledger --by key|model|day`: the report, from the database in force.

Exit codes: 0 printed, 1 the database cannot be read, 2 bad input.
"""

from __future__ import annotations

import argparse
import calendar
import os
import re
import sqlite3
import sys
from collections.abc import Mapping
from datetime import date
from typing import NoReturn

from sqlalchemy.exc import DBAPIError

from gateway.ledger import report
from gateway.ledger.engine import one_line, reader
from gateway.ledger.report import DAY, By, Filters, Lines
from gateway.ledger.tables import SchemaError
from gateway.ledger.target import NAME, Target, parse, refusal
from gateway.settings import SettingsError

FAILED = 1
BAD_INPUT = 2


class Parser(argparse.ArgumentParser):
    """argparse whose refusals are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"usage: {message}\n")


def parser() -> Parser:
    top = Parser(prog="python -m gateway.ledger", description="Requests and tokens in the ledger.")
    top.add_argument("--by", choices=("key", "model", "day"), default="key")
    top.add_argument("--since", metavar="DATE", type=day, help="first day that counts, UTC")
    top.add_argument("--until", metavar="DATE", type=day, help="last day that counts, UTC")
    top.add_argument("--key", metavar="NAME", help="this key alone")
    top.add_argument("--model", metavar="NAME", help="this model alone")
    top.add_argument("--json", action="store_true")
    return top


def main(arguments: list[str]) -> int:
    """Print the report."""
    args = parser().parse_args(arguments)
    try:
        filters = _filters(args)
        target = _target(os.environ)
    except SettingsError as error:
        return _refuse(error.lines[0], BAD_INPUT)
    try:
        lines = look_up(target, args.by, filters)
    except (DBAPIError, sqlite3.Error, SchemaError, OSError) as error:
        return _refuse(f"usage: {target.shown} cannot be read: {one_line(error, target)}", FAILED)
    shown = report.as_json if args.json else report.as_table
    sys.stdout.write(shown(args.by, lines) + "\n")
    return 0


def look_up(target: Target, by: By, filters: Filters) -> Lines:
    """The report's rows; none while there is no file. Makes and changes nothing."""
    if target.file is not None and not target.file.exists():
        return {}
    engine = reader(target)
    try:
        with engine.connect() as connection:
            return report.read(connection, by, filters)
    finally:
        engine.dispose()


def _target(environ: Mapping[str, str]) -> Target:
    target = parse(environ.get(NAME, "").strip())
    if target is None:
        raise refusal("off", "set one of these and restart the gateway", "a database")
    return target


def _filters(args: argparse.Namespace) -> Filters:
    until = None if args.until is None else args.until + DAY
    if None not in (args.since, until) and until <= args.since:
        raise SettingsError(["usage: found --until before --since; wanted a span; fix: swap them"])
    return Filters(args.since, until, args.key, args.model)


def day(text: str) -> int:
    """Unix time of a day's start, UTC."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise argparse.ArgumentTypeError(f"found {text!r}; wanted a date such as 2027-01-31")
    try:
        return calendar.timegm(date.fromisoformat(text).timetuple())
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}, which is no day") from None


def _refuse(line: str, code: int) -> int:
    sys.stderr.write(f"{line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
