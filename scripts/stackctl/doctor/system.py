"""The host around the GPU: swap, shared memory, kernel, clock."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from stackctl import process
from stackctl.doctor.checks import GIB, Check, version_tuple

OLDEST_KERNEL = (5, 4)
SWAPPED_BYTES = 1 * GIB
SHM_BYTES = 1 * GIB


@dataclass(frozen=True)
class System:
    """Sizes in bytes. `synchronised`: the clock's, None where nobody tells. `huge_pages`: what
    transparent_hugepage/enabled has in brackets."""

    kernel: str
    swap_used: int
    shm: int
    synchronised: bool | None
    huge_pages: str


def read(root: Path = Path("/")) -> System:
    return System(
        kernel=os.uname().release,
        swap_used=swap_used(_text(root / "proc/meminfo")),
        shm=_size(root / "dev/shm"),
        synchronised=_synchronised(),
        huge_pages=chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _size(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return 0


def swap_used(meminfo: str) -> int:
    """Bytes, from /proc/meminfo."""
    found = dict(re.findall(r"^(Swap\w+): +(\d+) kB", meminfo, re.MULTILINE))
    return 1024 * (int(found.get("SwapTotal", 0)) - int(found.get("SwapFree", 0)))


def chosen(text: str) -> str:
    """`always [madvise] never` → madvise."""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else ""


def _synchronised() -> bool | None:
    done = process.run(["timedatectl", "show", "-p", "NTPSynchronized", "--value"], timeout=5)
    return {"yes": True, "no": False}.get(done.out.strip()) if done.rc == 0 else None


def judge(system: System, ranks: int) -> list[Check]:
    """All findings for an engine of `ranks` GPUs."""
    checks = [_kernel(system.kernel)]
    if system.swap_used > SWAPPED_BYTES:
        found = f"{system.swap_used / GIB:.1f} GiB swapped out"
        fix = "end other programs, or a host with more memory"
        checks.append(Check("swap", "warn", found, "none (what is swapped stalls the API)", fix))
    if ranks > 1 and 0 < system.shm < SHM_BYTES:
        found = f"shared memory (/dev/shm) of {system.shm / GIB:.2f} GiB"
        wanted = f"1 GiB for TENSOR_PARALLEL_SIZE={ranks} (a smaller one may fail under load)"
        fix = "sudo mount -o remount,size=8g /dev/shm"
        checks.append(Check("shm", "warn", found, wanted, fix))
    if system.synchronised is False:
        wanted = "it set by a time server (certificates and keys' expiry go by it)"
        fix = "sudo timedatectl set-ntp true"
        checks.append(Check("clock", "warn", "a clock that nobody sets", wanted, fix))
    return checks


def _kernel(release: str) -> Check:
    if version_tuple(release)[:2] < OLDEST_KERNEL:
        return Check("kernel", "warn", release, "5.4 or newer", "a newer distribution")
    return Check("kernel", "ok", release)
