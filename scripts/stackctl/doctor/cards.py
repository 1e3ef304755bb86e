"""The GPUs by one `nvidia-smi --query-gpu` with the fields that this driver knows."""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from stackctl import process

MIB = 1 << 20
SMI_S = 60.0  # without persistence the driver wakes each GPU up first
# An unknown field makes the whole query fail. Further names: what older drivers call the same.
FIELDS: tuple[tuple[str, ...], ...] = (
    ("index",),
    ("name", "gpu_name"),
    ("uuid", "gpu_uuid"),
    ("pci.bus_id", "gpu_bus_id"),
    ("driver_version",),
    ("compute_cap",),
    ("memory.total",),
    ("memory.used",),
    ("memory.free",),
    ("persistence_mode",),
    ("compute_mode",),
    ("mig.mode.current",),
    ("mig.mode.pending",),
    ("ecc.mode.current",),
    ("ecc.errors.uncorrected.volatile.total",),
    ("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",),
    ("remapped_rows.uncorrectable", "remapped_rows.dbe"),
    ("remapped_rows.pending",),
    ("remapped_rows.failure",),
    ("gpu_recovery_action",),
    ("temperature.gpu",),
    ("power.draw",),
    ("power.limit", "gpu.power.requested_limit"),
    ("clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown"),
    ("clocks_event_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown"),
    (
        "clocks_event_reasons.hw_power_brake_slowdown",
        "clocks_throttle_reasons.hw_power_brake_slowdown",
    ),
    ("clocks_event_reasons.sw_thermal_slowdown", "clocks_throttle_reasons.sw_thermal_slowdown"),
    ("pcie.link.gen.current",),
    ("pcie.link.width.current",),
    ("fabric.state",),
    ("fabric.status",),
)
# Every driver knows these; asked for alone where the list of fields can't be had.
ALWAYS = frozenset({"index", "name", "uuid", "driver_version", "memory.total", "memory.used"})
# In place of any value; all other words in brackets mean that it is not told.
BROKEN = ("[GPU requires reset]", "[GPU is lost]")


@dataclass(frozen=True)
class Card:
    """One GPU: field (the first of its names above) → value. What nvidia-smi does not tell is
    missing. `slices`: MIG instances."""

    fields: Mapping[str, str]
    slices: int = 0

    def get(self, name: str) -> str:
        return self.fields.get(name, "")

    def number(self, name: str) -> float | None:
        text = self.get(name)
        return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", text) else None

    @property
    def index(self) -> str:
        return self.get("index")

    @property
    def broken(self) -> str:
        """Its own word for being out of order, or an empty string."""
        return next((value.strip("[]") for value in self.fields.values() if value in BROKEN), "")


@dataclass(frozen=True)
class App:
    """A process that computes on a GPU. `used` in bytes, None where it is not told."""

    pid: int
    name: str
    uuid: str
    used: int | None
    cgroup: str = field(default="", repr=False)


@dataclass(frozen=True)
class Cards:
    """`error`: why the query told nothing although nvidia-smi lists GPUs."""

    cards: tuple[Card, ...] = ()
    apps: tuple[App, ...] = ()
    error: str = ""


def read() -> Cards:
    """Two quick calls; two more where MIG is on or a GPU's memory is in use."""
    listing = process.run(["nvidia-smi", "--help-query-gpu"], timeout=SMI_S)
    asked = choose(parse_help(listing.out))
    query = [
        "nvidia-smi",
        f"--query-gpu={','.join(asked.values())}",
        "--format=csv,noheader,nounits",
    ]
    done = process.run(query, timeout=SMI_S)
    cards = parse(done.out, tuple(asked)) if done.rc == 0 else ()
    if not cards:
        return Cards(error=" ".join(f"{done.out} {done.err}".split())[:300] or done.last_line)
    if any(card.get("mig.mode.current") == "Enabled" for card in cards):
        cards = with_slices(cards, process.run(["nvidia-smi", "-L"], timeout=SMI_S).out)
    return Cards(cards, read_apps() if any(card.number("memory.used") for card in cards) else ())


def parse_help(text: str) -> frozenset[str]:
    """All names in the lines `"name" or "other_name"`."""
    lines = re.findall(r'^"[\w.]+"(?: or "[\w.]+")*$', text, re.MULTILINE)
    return frozenset(name for line in lines for name in re.findall(r'"([\w.]+)"', line))


def choose(known: frozenset[str]) -> dict[str, str]:
    """Our name of a field → the driver's, for those it has."""
    known = known or ALWAYS
    found = ((names[0], next((n for n in names if n in known), "")) for names in FIELDS)
    return {ours: theirs for ours, theirs in found if theirs}


def parse(text: str, names: tuple[str, ...]) -> tuple[Card, ...]:
    """From the query's lines; one with another number of values is passed over."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return tuple(
        Card({name: value for name, value in zip(names, map(clean, row), strict=True) if value})
        for row in rows
        if len(row) == len(names)
    )


def clean(text: str) -> str:
    """Empty for what is not told: `[N/A]`, `N/A`, `[Not Supported]`, `[Requested functionality has
    been deprecated]` and their kin."""
    value = text.strip()
    if value in BROKEN:
        return value
    return "" if value.startswith("[") or value in {"N/A", "ERR!"} else value


def with_slices(cards: Iterable[Card], listing: str) -> tuple[Card, ...]:
    """The instances that `nvidia-smi -L` indents below their GPU."""
    parts = re.split(r"^GPU (\d+):", listing, flags=re.MULTILINE)[1:]
    counts = {
        index: len(re.findall(r"^ +MIG ", below, re.MULTILINE))
        for index, below in zip(parts[::2], parts[1::2], strict=True)
    }
    return tuple(replace(card, slices=counts.get(card.index, 0)) for card in cards)


def read_apps() -> tuple[App, ...]:
    query = "--query-compute-apps=pid,gpu_uuid,used_memory,process_name"
    done = process.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], timeout=SMI_S)
    apps = parse_apps(done.out) if done.rc == 0 else ()
    return tuple(replace(app, cgroup=_cgroup(app.pid)) for app in apps)


def parse_apps(text: str) -> tuple[App, ...]:
    """Lines of pid, GPU, MiB and name; the name may hold commas itself."""
    rows = [line.split(", ", 3) for line in text.splitlines()]
    return tuple(
        App(int(pid), name.strip(), uuid, int(used) * MIB if used.isdecimal() else None)
        for pid, uuid, used, name in (row for row in rows if len(row) == 4)
        if pid.isdecimal()
    )


def _cgroup(pid: int) -> str:
    """It holds the id of the container that the process runs in."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
