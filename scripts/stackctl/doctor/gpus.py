"""GPUs by `nvidia-smi`, and what speaks against serving from them."""

import csv
import re
import sys
from collections.abc import Iterator, Mapping

from stackctl import process
from stackctl.doctor.checks import Check, Status, of_line, version_tuple
from stackctl.layout import Layout

# One question for all of it; an older driver fails on a field that it does not know.
FIELDS = (
    "index", "name", "driver_version", "compute_cap", "memory.total", "memory.used",
    "persistence_mode", "compute_mode", "mig.mode.current", "mig.mode.pending",
    "ecc.errors.uncorrected.volatile.total", "remapped_rows.pending", "remapped_rows.failure",
    "gpu_recovery_action", "fabric.state", "clocks_event_reasons.hw_slowdown",
)  # fmt: skip
OLDEST_CAPABILITY = (7, 5)  # what vLLM's images are built for
BUSY_MIB = 1024
# Xid codes after which a GPU has to be reset or replaced (NVIDIA's catalogue, as cloud providers
# act on it); others come from programs.
FATAL_XIDS = frozenset(
    (46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158)
)

Card = Mapping[str, str]  # field → what nvidia-smi says; left out where it says that it can't


def read() -> list[Card]:
    """This host's GPUs; none where nvidia-smi does not answer."""
    known = re.findall(r'^"([\w.]+)"', process.run(["nvidia-smi", "--help-query-gpu"]).out, re.M)
    asked = [field for field in FIELDS if not known or field in known]
    query = f"--query-gpu={','.join(asked)}"
    done = process.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], timeout=60)
    return parse(done.out, asked) if done.rc == 0 else []


def parse(listing: str, fields: list[str]) -> list[Card]:
    """From the query's lines; [N/A], N/A and [Requested functionality …] are left out."""
    rows = csv.reader(listing.splitlines(), skipinitialspace=True)
    return [_card(fields, row) for row in rows if len(row) == len(fields) and row[0].isdigit()]


def _card(fields: list[str], row: list[str]) -> Card:
    pairs = zip(fields, (cell.strip() for cell in row), strict=True)
    return {name: value for name, value in pairs if value not in ("", "N/A") and value[0] != "["}


def read_slices() -> int:
    """MIG instances, of all GPUs."""
    return len(re.findall(r"^ +MIG ", process.run(["nvidia-smi", "-L"], timeout=60).out, re.M))


def read_xids() -> list[int]:
    """Xid codes in the kernel's log since the boot, as far as this user may read it."""
    words = ["journalctl", "-k", "-b", "-q", "--no-pager", "-n", "200", "-g", "NVRM: Xid"]
    return parse_xids(process.run(words, timeout=5).out)


def parse_xids(log: str) -> list[int]:
    """From lines such as `NVRM: Xid (PCI:0000:00:06): 79, pid=…`."""
    return [int(code) for code in re.findall(r"NVRM: Xid \([^)]*\): (\d+)", log)]


def driver(layout: Layout, cards: list[Card], image: str) -> list[Check]:
    """The driver against the build of the image, by the engine's own matrix."""
    found = next((card["driver_version"] for card in cards if "driver_version" in card), "")
    if not found:
        return []
    command = [sys.executable, "-P", "-m", "launcher.versions", "--driver", found]
    named = ["--image", image] if image else []
    env = {"PYTHONPATH": str(layout.launcher_parent)}
    done = process.run([*command, *named], env=env, cwd=layout.root)
    if done.rc == 0:
        return [Check("driver", "ok", found)]
    return [of_line("driver", done.last_line)]


def judge(cards: list[Card], slices: int, ranks: int, *, ours: bool) -> list[Check]:
    """All findings. ours: this stack runs, so that memory in use is its own."""
    checks: list[Check] = []
    for card in cards:
        where = f"GPU {card['index']} ({card.get('name', '?')})"
        checks += [
            *_mig(card, where, slices, ranks),
            *_errors(card, where),
            *_settings(card, where),
        ]
        if not ours:
            checks += _busy(card, where)
    return [*checks, *_fabric(cards, ranks)]


def _mig(card: Card, where: str, slices: int, ranks: int) -> Iterator[Check]:
    now, then = card.get("mig.mode.current", ""), card.get("mig.mode.pending", "")
    off = f"end what uses the GPU, then: sudo nvidia-smi -i {card['index']} -mig 0"
    if now == "Enabled" and not slices:
        wanted = "a whole GPU, or instances on it (vLLM sees no device so)"
        yield Check("mig", "fail", f"MIG on without instances: {where}", wanted, off)
    elif now == "Enabled" and ranks > 1:
        wanted = f"whole GPUs for TENSOR_PARALLEL_SIZE={ranks} (slices can't talk to each other)"
        yield Check("mig", "fail", f"MIG on: {where}", wanted, f"{off}, or TENSOR_PARALLEL_SIZE=1")
    elif now == "Enabled":
        wanted = "a whole GPU, unless one slice is meant to serve"
        yield Check("mig", "warn", f"MIG on with {slices} instances: {where}", wanted, off)
    if now and then and now != then:
        found = f"MIG {now}, {then} after a reset: {where}"
        yield Check("mig", "warn", found, "no pending change", "reboot, or sudo nvidia-smi -r")


def _errors(card: Card, where: str) -> Iterator[Check]:
    action = card.get("gpu_recovery_action", "None")
    if action != "None":
        found = f"recovery action {action!r}: {where}"
        yield Check("health", "fail", found, "None", "do it (nvidia-smi -q), or replace the host")
    if card.get("remapped_rows.failure") == "Yes":
        found = f"memory rows that could not be remapped: {where}"
        yield Check("health", "fail", found, "none", "replace the GPU (a new Droplet)")
    if card.get("remapped_rows.pending") == "Yes":
        found = f"memory rows to be remapped: {where}"
        yield Check("health", "warn", found, "none pending", "sudo nvidia-smi -r, or reboot")
    errors = card.get("ecc.errors.uncorrected.volatile.total", "0")
    if errors.isdigit() and int(errors):
        found = f"{errors} uncorrected memory errors since the boot: {where}"
        yield Check("health", "warn", found, "0", "reboot; if they come back, replace the GPU")


def _settings(card: Card, where: str) -> Iterator[Check]:
    capability = card.get("compute_cap", "")
    if capability and version_tuple(capability) < OLDEST_CAPABILITY:
        found = f"compute capability {capability}: {where}"
        yield Check("gpu", "fail", found, "7.5 or newer", "another GPU, or STACK_MODE=cpu")
    compute = card.get("compute_mode", "Default")
    if compute != "Default":
        fix = f"sudo nvidia-smi -i {card['index']} -c 0"
        level: Status = "fail" if compute == "Prohibited" else "warn"
        yield Check("gpu", level, f"compute mode {compute}: {where}", "Default", fix)
    if card.get("persistence_mode") == "Disabled":
        fix = "sudo systemctl enable --now nvidia-persistenced"
        wanted = "it on (without it an idle GPU sleeps and the first start is slow)"
        yield Check("gpu", "warn", f"persistence mode off: {where}", wanted, fix)
    if card.get("clocks_event_reasons.hw_slowdown") == "Active":
        found = f"slowed down by its hardware (heat or power): {where}"
        yield Check("gpu", "warn", found, "full clocks", "nvidia-smi -q -d PERFORMANCE; a new host")


def _busy(card: Card, where: str) -> Iterator[Check]:
    used = card.get("memory.used", "0")
    if used.isdigit() and int(used) > BUSY_MIB:
        found = f"{int(used) / 1024:.1f} GiB in use by other programs: {where}"
        fix = "end them (nvidia-smi shows them), or lower GPU_MEMORY_UTILIZATION"
        yield Check("gpu", "warn", found, "a free GPU", fix)


def _fabric(cards: list[Card], ranks: int) -> Iterator[Check]:
    """NVSwitch hosts need the fabric manager, of the driver's own version."""
    states = {card["fabric.state"] for card in cards if "fabric.state" in card}
    if len(cards) < 2 or states <= {"Completed"}:
        return
    found = f"NVSwitch fabric {', '.join(sorted(states))}"
    fix = "sudo systemctl restart nvidia-fabricmanager (its version must be the driver's)"
    level: Status = "fail" if ranks > 1 else "warn"
    yield Check("fabric", level, found, "Completed", fix)


def xids(codes: list[int]) -> list[Check]:
    """Faults of the hardware that the kernel saw."""
    fatal = sorted(set(codes) & FATAL_XIDS)
    if not fatal:
        return []
    found = f"Xid {', '.join(map(str, fatal))} in the kernel's log since the boot"
    fix = "reboot; if it comes back, replace the host (power-cycle or recreate the Droplet)"
    return [Check("health", "warn", found, "no fault of a GPU", fix)]
