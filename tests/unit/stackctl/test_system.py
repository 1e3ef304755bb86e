"""The system around the engine: readers on small files, judges on single facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from stackctl.doctor import system
from stackctl.doctor.system import EARLIEST, System
from stackctl.mode import Mode

GIB = 1 << 30
SOUND = System(
    kernel="6.8.0-87-generic", swap_used=0, shm=16 * GIB, synchronised=True, huge_pages="madvise",
    modules=True, waiting=("base-files",), now=EARLIEST + 1.0,
)  # fmt: skip


def said(found: System, mode: Mode = "gpu", ranks: int = 2, files: str = "") -> list[str]:
    return [
        f"{c.name} {c.status}: {c.line}"
        for c in system.judge(found, mode, ranks, files)
        if c.status != "ok"
    ]


def test_a_sound_system_has_nothing_to_say() -> None:
    assert said(SOUND) == []
    assert [c.name for c in system.judge(SOUND, "gpu", 2, "")] == ["kernel"]


@pytest.mark.parametrize(
    ("changes", "start", "fix"),
    [
        ({"kernel": "4.19.0-27-amd64"}, "kernel warn: found 4.19.0", "newer distribution"),
        ({"modules": False}, "kernel warn: found 6.8.0-87-generic, whose modules", "reboot"),
        ({"waiting": ("linux-image-6.8", "x")}, "kernel warn", "reboot: linux-image-6.8;"),
        ({"swap_used": 3 * GIB}, "swap warn: found 3.0 GiB", "end other programs"),
        ({"shm": GIB // 16}, "shm warn: found shared memory (/dev/shm) of 0.06", "remount"),
        ({"synchronised": False}, "clock warn", "set-ntp true"),
        ({"now": 1000.0}, "clock fail: found a clock at 1970-01-01", "set-ntp true"),
    ],
)
def test_what_is_wrong_is_one_line(changes: dict[str, object], start: str, fix: str) -> None:
    (line,) = said(replace(SOUND, **changes))  # type: ignore[arg-type]
    assert line.startswith(start)
    assert fix in line


def test_what_only_a_gpu_needs() -> None:
    found = replace(SOUND, modules=False, waiting=("nvidia-dkms-580",), shm=1)
    assert said(found, "cpu") == []
    assert said(replace(SOUND, shm=1), ranks=1) == []


def test_huge_pages_matter_to_valkey_alone() -> None:
    always, files = replace(SOUND, huge_pages="always"), "docker-compose.yml:compose/workers.yml"
    assert said(always) == []
    assert said(always, "local", files=files) == []
    (line,) = said(always, files=files)
    assert line.startswith("huge pages warn")


def test_readers(tmp_path: Path) -> None:
    for name, text in {
        "proc/meminfo": "MemTotal: 99 kB\nSwapTotal:  2048 kB\nSwapFree:  1024 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "run/reboot-required.pkgs": "linux-image-6.8\nlinux-base\nlinux-base\n",
        "lib/modules/1.2.3/modules.dep": "",
        "dev/shm/x": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    found = system.read(tmp_path)
    assert (found.swap_used, found.huge_pages) == (1 << 20, "madvise")
    assert found.waiting == ("linux-image-6.8", "linux-base")
    assert found.modules is False
    assert found.shm > 0
    assert system.has_modules(tmp_path / "lib/modules", "1.2.3") is True
    assert system.has_modules(tmp_path / "none", "1.2.3") is None
    bare = system.read(tmp_path / "nothing")
    assert (bare.swap_used, bare.huge_pages, bare.modules, bare.waiting) == (0, "", None, ())
