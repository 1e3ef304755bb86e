"""Faults of a GPU that the kernel saw: Xid codes in its log."""

import re

from stackctl import process
from stackctl.doctor.checks import Check

# Codes after which a GPU has to be reset or replaced (NVIDIA's catalogue, as cloud providers act
# on it); others come from programs.
FATAL = frozenset(
    (46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158)
)


def read() -> list[int]:
    """Codes since the boot, as far as this user may read the log."""
    words = ["journalctl", "-k", "-b", "-q", "--no-pager", "-n", "200", "-g", "NVRM: Xid"]
    return parse(process.run(words, timeout=5).out)


def parse(log: str) -> list[int]:
    """From lines such as `NVRM: Xid (PCI:0000:00:06): 79, pid=…`."""
    return [int(code) for code in re.findall(r"NVRM: Xid \([^)]*\): (\d+)", log)]


def judge(codes: list[int]) -> list[Check]:
    fatal = sorted(set(codes) & FATAL)
    if not fatal:
        return []
    found = f"Xid {', '.join(map(str, fatal))} in the kernel's log since the boot"
    fix = "reboot; if it comes back, replace the host (power-cycle or recreate the Droplet)"
    return [Check("health", "warn", found, "no fault of a GPU", fix)]
