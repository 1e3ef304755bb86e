"""`python -m bench.gateway`: measure the data path and print the tables.

Exit codes: 0 measured, and metrics and ledger say what was sent; 1 they do not, or requests
failed; 2 it could not be measured; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path

import uvloop

from bench.gateway import books, contenders, machine, report
from bench.gateway.contenders import ROOT, BenchError, Contender, Place
from bench.gateway.machine import Foreign
from bench.gateway.measure import KINDS, Bench, Plan

Maker = Callable[[Place, str], AbstractContextManager[Contender]]

MAKERS: dict[str, Maker] = {
    "gateway": contenders.gateway,
    "byte copy": contenders.byte_copy,
    "nginx": contenders.nginx,
}
ALL = ("direct", "nginx", "byte copy", "gateway")


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return measure(options)
    except BenchError as error:
        say(f"bench-gateway: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-gateway", description="What the gateway costs.")
    parser.add_argument("--only", type=_words(KINDS), default=KINDS, help=", ".join(KINDS))
    parser.add_argument("--contenders", type=_words(ALL), default=ALL, help=", ".join(ALL))
    parser.add_argument("--streams", type=_counts, default=(64, 512))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of one streaming run")
    parser.add_argument("--json", type=Path, help="write the numbers there, too")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> int:
    """One whole benchmark. Files: bench-results/<time>/gateway.{json,md}."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as folder, ExitStack() as stack:
        place = Place(*two_cores(), Path(folder))
        engine = stack.enter_context(contenders.fake_engine(place))
        upstream = f"http://127.0.0.1:{engine.target.port}"
        running = {"direct": engine} | {
            name: stack.enter_context(maker(place, upstream))
            for name, maker in MAKERS.items()
            if name in options.contenders
        }
        chosen = [running[name] for name in ALL if name in options.contenders]
        plan = Plan(options.only, options.streams, options.repeats, options.seconds)
        own = [os.getpid(), engine.process.pid, *(pid for each in chosen for pid in each.pids())]
        foreign = Foreign((place.core, place.load_core), own)
        bench = Bench(plan, engine, chosen, say, foreign)
        os.sched_setaffinity(0, {place.load_core})
        uvloop.run(bench.run())
        findings = failures(bench)
        if "gateway" in running:
            findings += books.judge(bench.sent["gateway"], running["gateway"], Path(folder))
    found = machine.versions(cores)
    text = tables(bench, found, findings)
    written = write(bench, found, text, options.json)
    say(f"\n{text}\n\n{written}/gateway.md")
    return 1 if findings else 0


def failures(bench: Bench) -> list[str]:
    return [
        f"{name}: {sent.failed} requests or streams did not end well"
        for name, sent in bench.sent.items()
        if sent.failed
    ]


def tables(bench: Bench, versions: dict[str, str], findings: list[str]) -> str:
    numbers, streams = bench.numbers, bench.plan.streams
    parts = [
        ", ".join(f"{name} {value}" for name, value in versions.items()),
        report.disturbance(bench.disturbed, os.sched_getscheduler(0) != os.SCHED_OTHER),
        f"{bench.plan.repeats} repeats, streams of {bench.plan.seconds:g} s.",
        report.medians(numbers, streams),
    ]
    if report.BASE in numbers and "direct" in numbers:
        parts += [report.relative(numbers, streams), report.goals(numbers)]
    good = "Every request ended well"
    if "gateway" in bench.sent:
        good += "; the gateway's metrics and ledger equal what was sent"
    parts.append("\n".join(findings) or f"{good}.")
    return "\n\n".join(part for part in parts if part)


def write(bench: Bench, versions: dict[str, str], text: str, copy: Path | None) -> Path:
    """The numbers of every repeat and the tables, in a new folder below bench-results/."""
    folder = ROOT / "bench-results" / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        "versions": versions,
        "plan": asdict(bench.plan),
        "numbers": bench.numbers,
        "sent": {name: asdict(sent) for name, sent in bench.sent.items()},
        "disturbed": bench.disturbed,
    }
    data = json.dumps(found, indent=1) + "\n"
    (folder / "gateway.json").write_text(data)
    (folder / "gateway.md").write_text(text + "\n")
    if copy is not None:
        copy.write_text(data)
    return folder


def two_cores() -> tuple[int, int]:
    """One core for the contender, one for clients and engine."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("found 1 core; wanted 2: one for the contender, one for the load")
    return cores[-1], cores[0]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _words(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """A parser of a comma list of known words."""

    def words(text: str) -> tuple[str, ...]:
        given = tuple(word.strip() for word in text.split(","))
        unknown = [word for word in given if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"found {unknown[0]!r}; wanted {', '.join(known)}")
        return given

    return words


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(map(int, text.split(",")))
    if not all(1 <= count <= 4096 for count in counts):
        raise argparse.ArgumentTypeError(f"found {text!r}; wanted numbers from 1 to 4096")
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
