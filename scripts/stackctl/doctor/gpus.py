"""Judges of the GPUs that the engine would take, from what nvidia-smi told of them.

The words of the fields are those of drivers 535 to 595. No broken GPU was ever seen here: what one
says is taken from nvidia-smi's documentation.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from stackctl import process
from stackctl.doctor.cards import Card
from stackctl.doctor.checks import Check, Status, of_line, version_tuple
from stackctl.layout import Layout

OLDEST_CAPABILITY = (7, 5)  # what vLLM's images are built for
SRAM = "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded"
UNCORRECTED = "ecc.errors.uncorrected.volatile.total"
# Power capping is normal under load and is not one of them.
THROTTLES = {
    "hw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "power brake",
    "hw_slowdown": "heat or power",
    "sw_thermal_slowdown": "near its temperature limit",
}
KNOWN = "a tag of docs/engine.md (Versions and drivers) in VLLM_IMAGE"
REPLACE = "replace the GPU (a new Droplet)"


def driver(layout: Layout, cards: Sequence[Card], image: str) -> list[Check]:
    """The driver against the build of the image, by the engine's own matrix."""
    found = next((card.get("driver_version") for card in cards), "")
    if not found:
        return []
    command = [sys.executable, "-P", "-m", "launcher.host.versions", "--driver", found]
    named = ["--image", image] if image else []
    env = {"PYTHONPATH": str(layout.launcher_parent)}
    done = process.run([*command, *named], env=env, cwd=layout.root)
    if done.rc == 0 and done.out.strip():
        wanted = "an image whose CUDA is known"
        return [Check("driver", "warn", f"{found}, and {done.last_line}", wanted, KNOWN)]
    if done.rc == 0:
        return [Check("driver", "ok", found)]
    return [of_line("driver", done.last_line)]


def judge(cards: Sequence[Card], ranks: int) -> list[Check]:
    """All findings of a host's `cards`; the first `ranks` are those that Docker hands over."""
    own = cards[:ranks]
    parts = (_health(own), _mig(own, ranks), _memory_rows(own), _settings(own), _fabric(cards))
    return [check for part in parts for check in part]


def name(cards: Sequence[Card]) -> str:
    """`GPU 0 (NVIDIA H200)`, `GPU 0, 3 (NVIDIA H200)`."""
    return f"GPU {', '.join(c.get('index') for c in cards)} ({cards[0].get('name') or '?'})"


def where(cards: Iterable[Card], rule: Callable[[Card], bool]) -> list[Card]:
    return [card for card in cards if rule(card)]


def _health(cards: Sequence[Card]) -> Iterator[Check]:
    """What the driver says of a GPU as a whole: lost, to be reset, to be drained."""
    if broken := where(cards, lambda card: bool(card.broken)):
        fix = f"reboot; if it comes back, {REPLACE}"
        found = f"{broken[0].broken}: {name(broken)}"
        yield Check("health", "fail", found, "a GPU that answers", fix)
    asking = where(cards, lambda card: card.get("gpu_recovery_action") not in {"", "None"})
    if not asking:
        return
    action = asking[0].get("gpu_recovery_action")
    found = f"recovery action {action!r}: {name(asking)}"
    if action.startswith("Drain"):  # what runs may go on to its end
        fix = "make down when it suits, then sudo nvidia-smi -r, or reboot"
        yield Check("health", "warn", found, "None", fix)
    else:
        fix = f"make down, then reboot (or sudo nvidia-smi -r); if it comes back, {REPLACE}"
        yield Check("health", "fail", found, "None", fix)


def _mig(cards: Sequence[Card], ranks: int) -> Iterator[Check]:
    on = where(cards, lambda card: card.get("mig.mode.current") == "Enabled")
    if on:
        yield _sliced(on, ranks)
    for card in where(cards, _mig_changes)[:1]:
        now, then = card.get("mig.mode.current"), card.get("mig.mode.pending")
        found = f"MIG {now}, {then} after a reset: {name([card])}"
        yield Check("mig", "warn", found, "no pending change", "reboot, or sudo nvidia-smi -r")


def _mig_changes(card: Card) -> bool:
    now, then = card.get("mig.mode.current"), card.get("mig.mode.pending")
    return bool(now and then) and now != then


def _sliced(on: Sequence[Card], ranks: int) -> Check:
    """With MIG on, a GPU is not there as a whole; its slices can't be joined."""
    off = f"end what uses the GPU, then: sudo nvidia-smi -i {on[0].get('index')} -mig 0"
    empty = where(on, lambda card: not card.slices)
    if empty:
        wanted = "a whole GPU, or instances on it (vLLM sees no device so)"
        return Check("mig", "fail", f"MIG on without instances: {name(empty)}", wanted, off)
    if ranks > 1:
        wanted = f"whole GPUs for TENSOR_PARALLEL_SIZE={ranks} (slices can't talk to each other)"
        fix = f"{off}, or TENSOR_PARALLEL_SIZE=1"
        return Check("mig", "fail", f"MIG on: {name(on)}", wanted, fix)
    found = f"MIG on with {on[0].slices} instances: {name(on)}"
    wanted = "a whole GPU, unless one slice is meant to serve"
    return Check("mig", "warn", found, wanted, off)


def _memory_rows(cards: Sequence[Card]) -> Iterator[Check]:
    """ECC: what was corrected is no news."""
    if failed := where(cards, lambda card: card.get("remapped_rows.failure") == "Yes"):
        found = f"memory rows that could not be remapped: {name(failed)}"
        yield Check("health", "fail", found, "none", REPLACE)
    if pending := where(cards, lambda card: card.get("remapped_rows.pending") == "Yes"):
        found = f"memory rows to be remapped: {name(pending)}"
        yield Check("health", "warn", found, "none pending", "sudo nvidia-smi -r, or reboot")
    if worn := where(cards, lambda card: card.get(SRAM) == "Yes"):
        found = f"more SRAM errors than its maker allows: {name(worn)}"
        yield Check("health", "warn", found, "below the threshold", REPLACE)
    if bad := where(cards, lambda card: bool(card.number(UNCORRECTED))):
        found = f"{bad[0].get(UNCORRECTED)} uncorrected memory errors since the boot: {name(bad)}"
        fix = "reboot; if they come back, replace the GPU"
        yield Check("health", "warn", found, "0", fix)


def _settings(cards: Sequence[Card]) -> Iterator[Check]:
    old = where(cards, lambda card: () < version_tuple(_capability(card)) < OLDEST_CAPABILITY)
    if old:
        found = f"compute capability {_capability(old[0])}: {name(old)}"
        yield Check("gpu", "fail", found, "7.5 or newer", "another GPU, or STACK_MODE=cpu")
    if other := where(cards, lambda card: card.get("compute_mode") not in {"", "Default"}):
        mode = other[0].get("compute_mode")
        level: Status = "fail" if mode == "Prohibited" else "warn"
        found, fix = f"compute mode {mode}: {name(other)}", "sudo nvidia-smi -c 0"
        yield Check("gpu", level, found, "Default", fix)
    if asleep := where(cards, lambda card: card.get("persistence_mode") == "Disabled"):
        fix = "sudo systemctl enable --now nvidia-persistenced"
        wanted = "it on (without it an idle GPU sleeps and the first start is slow)"
        yield Check("gpu", "warn", f"persistence mode off: {name(asleep)}", wanted, fix)
    if slow := where(cards, lambda card: bool(_throttles(card))):
        found = f"slowed down by its hardware ({_throttles(slow[0])}): {name(slow)}"
        yield Check("gpu", "warn", found, "full clocks", "nvidia-smi -q -d PERFORMANCE; a new host")


def _capability(card: Card) -> str:
    return card.get("compute_cap")


def _throttles(card: Card) -> str:
    prefix = "clocks_event_reasons"
    active = (words for key, words in THROTTLES.items() if card.get(f"{prefix}.{key}") == "Active")
    return next(active, "")


def _fabric(cards: Sequence[Card]) -> Iterator[Check]:
    """NVSwitch hosts need the fabric manager, of the driver's own version; without it CUDA starts
    on none of their GPUs. One that was handed to a virtual machine by itself is let be."""
    told = where(cards, lambda card: bool(card.get("fabric.state")))
    bad = where(told, lambda card: _fabric_state(card) != "Completed")
    if len(cards) < 2 or not bad:
        return
    found = f"NVSwitch fabric {', '.join(sorted({_fabric_state(card) for card in bad}))}"
    version = bad[0].get("driver_version") or "the driver's"
    fix = f"sudo systemctl restart nvidia-fabricmanager (its version must be {version})"
    yield Check("fabric", "fail", found, "Completed", fix)


def _fabric_state(card: Card) -> str:
    state, status = card.get("fabric.state"), card.get("fabric.status") or "Success"
    return state if status == "Success" else f"{state} ({status})"
