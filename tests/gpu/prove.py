#!/usr/bin/env python3
"""`python3 tests/gpu/prove.py --model DIR --out DIR`: proofs on a GPU host. tests/gpu/README.md.

Exit codes: 0 all that ran is as it has to be, 1 something is not, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import FrameType

sys.path[:0] = [str(Path(__file__).resolve().parents[1]),
                str(Path(__file__).resolve().parents[2] / "docker/engine")]  # fmt: skip

from gpu import cases, gpus, leftover, proofs, report, together  # noqa: E402 - the path comes first
from gpu.cases import Case  # noqa: E402
from gpu.engine import Place  # noqa: E402
from gpu.judge import Row  # noqa: E402

BAD_INPUT, INTERRUPTED = 2, 130
LOG_BYTES = 60_000  # the end of an output that is kept


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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        if args.list:
            return _list()
        if args.merge:
            return _merge(args.merge)
        return _run(args)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_INPUT
    except KeyboardInterrupt:
        say("interrupted; results.json has what was done")
        return INTERRUPTED


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once: what ends the processes may not be interrupted itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _list() -> int:
    for case in cases.CASES:
        say(f"{case.usual_s:>4} s  {case.name}{'  (cpu, too)' if case.on_cpu else ''}")
    return 0


def _merge(folders: list[Path]) -> int:
    whole = report.merged(folders)
    sys.stdout.write(report.markdown(whole))
    return int(report.failed(whole["cases"]))


def _run(args: argparse.Namespace) -> int:
    if args.model is None or args.out is None or not (args.model / "config.json").is_file():
        raise ValueError("found no --model DIR with a config.json, or no --out DIR; wanted both")
    end = time.monotonic() + args.budget_s
    found = len(gpus.memory_used())
    if args.device == "cuda" and not found:
        raise ValueError("found no GPU (nvidia-smi); wanted one, or --device cpu")
    picked = cases.chosen(args.only, found or 1)
    if args.device == "cpu":
        picked = [case for case in picked if case.on_cpu]
        if not picked:
            raise ValueError(
                f"found no case of {args.only} for a CPU; wanted one that --list marks"
            )
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="prove-", ignore_cleanup_errors=True) as work:
        kept = (args.caches or Path(work) / "caches").resolve()
        place = Place(Path(work), kept, end, uuid.uuid4().hex, _clock())
        try:
            return _each(picked, place, args)
        finally:
            if killed := leftover.gone(place.mark):
                say(f"processes that had to be killed: {killed}")


def _clock() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda line: say(f"{time.monotonic() - began:6.0f} s  {line}")


def _each(picked: list[Case], place: Place, args: argparse.Namespace) -> int:
    head, rows = report.header(), list[Row]()
    for case in picked:
        if time.monotonic() + case.usual_s <= place.end:
            rows.append(_one(case, place, args, report.host(head)))
            report.write(args.out, head, rows, _left(picked, rows))
    if not rows:
        raise ValueError(
            f"found --budget-s {args.budget_s:g}, too little for any case; wanted more"
        )
    return _end(rows, _left(picked, rows), place.say)


def _left(picked: list[Case], rows: list[Row]) -> list[str]:
    done = {row["case"] for row in rows}
    return [case.name for case in picked if case.name not in done]


def _one(case: Case, place: Place, args: argparse.Namespace, host: str) -> Row:
    place.say(case.name)
    row = proofs.prove(case, place, args.model.resolve(), args.device, host)
    if killed := leftover.gone(place.mark):
        row["wrong"].append(f"processes left behind, killed: {killed}")
    if row["wrong"]:
        _keep(place.work, args.out / "logs" / case.name)
    place.say(f"{case.name}: {_short(row)}")
    return row


def _keep(work: Path, into: Path) -> None:
    """The end of what the launcher and vLLM said."""
    into.mkdir(parents=True, exist_ok=True)
    for path in work.glob("launcher.*"):
        (into / path.name).write_bytes(path.read_bytes()[-LOG_BYTES:])


def _end(rows: list[Row], waiting: list[str], tell: Callable[[str], None]) -> int:
    for one in together.findings(rows):
        tell(f"{one.what}: {one.value:.2f}, wanted {one.wanted}{'' if one.held else ': WRONG'}")
    if waiting:
        tell(f"not run for want of time: {', '.join(waiting)}")
    return int(report.failed(rows))


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
