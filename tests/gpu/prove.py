#!/usr/bin/env python3
"""`python3 tests/gpu/prove.py --model DIR --out DIR`: proofs on a GPU host. tests/gpu/README.md.

Exit codes: 0 all that ran is as it has to be, 1 something is not, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]),
                str(Path(__file__).resolve().parents[2] / "docker/engine")]  # fmt: skip

from gpu import cases, engine, proofs, report  # noqa: E402 - the path comes first
from gpu.cases import Case  # noqa: E402
from gpu.proofs import Row  # noqa: E402

BAD_INPUT = 2


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="prove.py")
    made.add_argument("--model", type=Path, help="folder of a real small model (its tokenizer)")
    made.add_argument("--out", type=Path, help="folder for results.json and results.md")
    made.add_argument("--only", default="", help="names of cases, or their beginnings")
    made.add_argument("--budget-s", type=float, default=540.0, help="stop before these seconds")
    made.add_argument("--caches", type=Path, help="compile caches that outlive this run")
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--list", action="store_true", help="the cases, and nothing else")
    made.add_argument("--merge", type=Path, nargs="+", help="folders of earlier runs, as one table")
    return made


def main(arguments: list[str]) -> int:
    args = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end what was started
    try:
        if args.list:
            return _say_all(f"{case.usual_s:>4} s  {case.name}" for case in cases.CASES)
        if args.merge:
            return _merge(args.merge)
        return _run(args)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_INPUT
    except KeyboardInterrupt:
        say("interrupted; results.json has what was done")
        return 130


def _say_all(lines: object) -> int:
    for line in lines:  # type: ignore[attr-defined]
        say(line)
    return 0


def _merge(folders: list[Path]) -> int:
    whole = report.merged(folders)
    sys.stdout.write(report.markdown(whole))
    return 1 if any(row["wrong"] for row in whole["cases"]) or whole["together"] else 0


def _run(args: argparse.Namespace) -> int:
    if args.model is None or args.out is None or not (args.model / "config.json").is_file():
        raise ValueError("found no --model DIR with a config.json, or no --out DIR; wanted both")
    gpus = len(engine.memory_used())
    picked = cases.chosen(args.only, gpus or 1)
    for case in picked:
        if args.device == "cuda" and case.gpus > gpus:
            raise ValueError(f"found {gpus} GPU; wanted {case.gpus} for {case.name}")
    if args.device == "cpu":
        picked = [case for case in picked if case.kind in ("ready", "kv")]
    taken, left = cases.within(picked, args.budget_s)
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="prove-") as work:
        place = engine.Place(Path(work), args.caches or Path(work) / "caches")
        return _each(taken, left, place, args)


def _each(
    taken: list[Case], left: list[Case], place: engine.Place, args: argparse.Namespace
) -> int:
    head, rows, began = report.header(), list[Row](), time.monotonic()
    waiting = [case.name for case in left]
    for at, case in enumerate(taken):
        if time.monotonic() - began + case.usual_s > args.budget_s:
            waiting += [one.name for one in taken[at:]]
            break
        say(f"{time.monotonic() - began:6.0f} s  {case.name}")
        row = proofs.prove(case, place, args.model, args.device)
        rows.append(row)
        say(f"{time.monotonic() - began:6.0f} s  {case.name}: {_short(row)}")
        report.write(args.out, head, rows, waiting)
    report.write(args.out, head, rows, waiting)
    together = proofs.against_each_other(rows)
    for line in together:
        say(line)
    if waiting:
        say(f"not run for want of time: {', '.join(waiting)}")
    return 1 if together or any(row["wrong"] for row in rows) else 0


def _short(row: Row) -> str:
    if row["wrong"]:
        return "WRONG: " + "; ".join(row["wrong"])
    kept = ("kv_tokens", "difference", "start", "load", "exit", "line")
    return json.dumps({name: row[name] for name in kept if row.get(name)})[:400]


def say(line: str) -> None:
    """One line, at once: a run may be killed."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
