"""Judge of the memory of the GPUs that the engine would take, and of who else computes there."""

from collections.abc import Sequence

from stackctl.doctor.cards import MIB, App, Card
from stackctl.doctor.checks import GIB, Check
from stackctl.doctor.gpus import name, where

KEPT = 0.985  # of what the driver calls total; it keeps the rest itself
NAME = "gpu"


def judge(cards: Sequence[Card], apps: Sequence[App], share: float, engine: str) -> list[Check]:
    """`share`: GPU_MEMORY_UTILIZATION. `engine`: the id of this stack's own running container, or
    empty. Of MIG slices nothing is told here."""
    whole = where(cards, lambda card: card.get("mig.mode.current") != "Enabled")
    uuids = {card.get("uuid") for card in whole}
    others = [a for a in apps if a.uuid in uuids and not (engine and engine in a.cgroup)]
    told = where(whole, lambda card: _total(card) > 0)  # [N/A] on some
    full = where(told, lambda card: _free(card) < share * KEPT * _total(card))
    if full and not engine:
        return [_full(full[0], others, share)]
    if not others:
        return []
    wanted = "a GPU for this engine alone (what others take grows, and slows it down)"
    return [Check(NAME, "warn", f"{_named(others)} on the GPU, too", wanted, _end(others))]


def _total(card: Card) -> float:
    return (card.number("memory.total") or 0) * MIB


def _free(card: Card) -> float:
    told = card.number("memory.free")
    used = card.number("memory.used") or 0
    return told * MIB if told is not None else _total(card) - used * MIB


def _full(card: Card, others: Sequence[App], share: float) -> Check:
    total, free = _total(card), _free(card)
    users = f" (in use: {_named(others)})" if others else ""
    found = f"{free / GIB:.1f} GiB free of {total / GIB:.1f}: {name([card])}{users}"
    wanted = f"{share * KEPT * total / GIB:.1f} (GPU_MEMORY_UTILIZATION={share:g})"
    lower = max(1, int(100 * free / total) - 1) / 100
    fix = f"{_end(others)}, or GPU_MEMORY_UTILIZATION={lower:.2f} in .env"
    return Check(NAME, "fail", found, wanted, fix)


def _named(apps: Sequence[App]) -> str:
    shown = ", ".join(f"{_short(app)} (pid {app.pid}, {_used(app)})" for app in apps[:3])
    return f"{shown} and {len(apps) - 3} more" if len(apps) > 3 else shown


def _short(app: App) -> str:
    return app.name.split(" ")[0].rpartition("/")[2][:40] or "a process"


def _used(app: App) -> str:
    return f"{app.used / GIB:.1f} GiB" if app.used is not None else "memory not told"


def _end(apps: Sequence[App]) -> str:
    """A process of another container is better ended by stopping that."""
    if not apps:
        return "find what holds it (nvidia-smi; sudo fuser -v /dev/nvidia*)"
    return f"end {'it' if len(apps) == 1 else 'them'} (docker ps, kill {apps[0].pid})"
