"""The system around the engine: kernel, swap, huge pages, shared memory, clock."""

import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from stackctl import process
from stackctl.doctor.checks import GIB, Check, version_tuple
from stackctl.mode import Mode

OLDEST_KERNEL = (5, 4)
SWAPPED_BYTES = 1 * GIB
SHM_BYTES = 1 * GIB
EARLIEST = 1_790_000_000  # September 2026 in Unix seconds: this release is younger
VALKEY_OVERLAY = "compose/workers.yml"
MATTER = ("linux-", "nvidia-", "libnvidia-")  # packages whose update a reboot completes


@dataclass(frozen=True)
class System:
    """Sizes in bytes. `synchronised`: the clock's, None where nobody tells, and `now` what it shows
    in Unix seconds. `huge_pages`: what transparent_hugepage/enabled has in brackets. `modules`:
    whether those of the running kernel are on disk, None in a container. `waiting`: packages that
    a reboot would complete."""

    kernel: str
    swap_used: int
    shm: int
    synchronised: bool | None
    huge_pages: str
    modules: bool | None = None
    waiting: tuple[str, ...] = ()
    now: float = EARLIEST


def read(root: Path = Path("/")) -> System:
    kernel = os.uname().release
    return System(
        kernel=kernel,
        swap_used=swap_used(_text(root / "proc/meminfo")),
        shm=_size(root / "dev/shm"),
        synchronised=_synchronised(),
        huge_pages=chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        modules=has_modules(root / "lib/modules", kernel),
        waiting=tuple(dict.fromkeys(_text(root / "run/reboot-required.pkgs").split())),
        now=time.time(),
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


def has_modules(folder: Path, kernel: str) -> bool | None:
    """An update may remove those of the kernel that still runs: then no driver can be loaded."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:
        return None
    return kernel in names if names else None


def _synchronised() -> bool | None:
    done = process.run(["timedatectl", "show", "-p", "NTPSynchronized", "--value"], timeout=5)
    return {"yes": True, "no": False}.get(done.out.strip()) if done.rc == 0 else None


def judge(system: System, mode: Mode, ranks: int, files: str) -> list[Check]:
    """All findings for an engine of `ranks` GPUs. `files`: COMPOSE_FILE."""
    parts = (
        [_kernel(system, mode)],
        _swap(system.swap_used),
        _huge_pages(system.huge_pages, files) if mode != "local" else [],
        _shared_memory(system.shm, ranks) if mode == "gpu" else [],
        _clock(system),
    )
    return [check for part in parts for check in part]


def _kernel(system: System, mode: Mode) -> Check:
    release = system.kernel
    if version_tuple(release)[:2] < OLDEST_KERNEL:
        return Check("kernel", "warn", release, "5.4 or newer", "a newer distribution")
    if mode == "gpu" and system.modules is False:
        found = f"{release}, whose modules an update removed"
        wanted = "them (the GPU's driver is one, and gone when it has to be loaded again)"
        return Check("kernel", "warn", found, wanted, "reboot")
    waiting = [name for name in system.waiting if name.startswith(MATTER)]
    if mode == "gpu" and waiting:
        found = f"{release}, and updates that wait for a reboot: {', '.join(waiting[:3])}"
        wanted = "what is installed to be what runs"
        return Check("kernel", "warn", found, wanted, "make down when it suits, then reboot")
    return Check("kernel", "ok", release)


def _swap(used: int) -> list[Check]:
    if used <= SWAPPED_BYTES:
        return []
    found = f"{used / GIB:.1f} GiB swapped out"
    fix = "end other programs, or a host with more memory"
    return [Check("swap", "warn", found, "none (what is swapped stalls the API)", fix)]


def _huge_pages(chosen: str, files: str) -> list[Check]:
    """PyTorch gains from them. Valkey, which several gateway workers share, asks for less."""
    if chosen != "always" or VALKEY_OVERLAY not in files:
        return []
    fix = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    wanted = "madvise, as Valkey's documentation asks for"
    return [Check("huge pages", "warn", "transparent huge pages always", wanted, fix)]


def _shared_memory(size: int, ranks: int) -> list[Check]:
    """The engine's container has the host's."""
    if ranks < 2 or not 0 < size < SHM_BYTES:
        return []
    found = f"shared memory (/dev/shm) of {size / GIB:.2f} GiB"
    wanted = f"1 GiB for TENSOR_PARALLEL_SIZE={ranks} (a smaller one may fail under load)"
    return [Check("shm", "warn", found, wanted, "sudo mount -o remount,size=8g /dev/shm")]


def _clock(system: System) -> list[Check]:
    """Certificates and the ends of keys go by it."""
    if system.now < EARLIEST:
        shown = time.strftime("%Y-%m-%d", time.gmtime(system.now))
        fix = "sudo timedatectl set-ntp true"
        return [Check("clock", "fail", f"a clock at {shown}", "the date of today", fix)]
    if system.synchronised is not False:
        return []
    wanted = "it set by a time server (certificates and keys' expiry go by it)"
    fix = "sudo timedatectl set-ntp true"
    return [Check("clock", "warn", "a clock that nobody sets", wanted, fix)]
