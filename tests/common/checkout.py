"""A second checkout in a temp folder: what git would have, without anybody's .env or secrets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What scripts/stack itself needs of a host; docker and nvidia-smi are left out on purpose.
HOST_PROGRAMS = ("sh", "dirname", "readlink", "sed", "rm", "make", "awk", "env", "chmod")


@dataclass(frozen=True)
class Checkout:
    """`bin` comes first and alone on PATH, so a test decides which programs the host has."""

    root: Path
    bin: Path
    home: Path

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.home), "LANG": "C.UTF-8", **(extra or {})}

    def stack(
        self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "scripts" / "stack"), *words],
            cwd=self.home,
            env=self.env(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def program(self, name: str, text: str) -> None:
        """Put an executable on PATH."""
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def set_env(self, **values: str) -> None:
        """Append to .env: the last of equal names counts."""
        with (self.root / ".env").open("a", encoding="utf-8") as stream:
            stream.writelines(f"{name}={value}\n" for name, value in values.items())


def make(folder: Path) -> Checkout:
    root, programs, home = folder / "stack", folder / "bin", folder / "home"
    for path in (root, programs, home):
        path.mkdir()
    for name in tracked():
        source, target = ROOT / name, root / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for name in HOST_PROGRAMS:
        found = shutil.which(name)
        if found:
            (programs / name).symlink_to(found)
    checkout = Checkout(root, programs, home)
    python = os.path.realpath(sys.executable)
    checkout.program("python3", f'#!/bin/sh\nexec "{python}" "$@"\n')
    return checkout


def tracked() -> list[str]:
    """`listed`, without the tests."""
    return [name for name in listed() if not name.startswith("tests/")]


def listed() -> list[str]:
    """Files a clone has, and new ones that git does not ignore."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in done.stdout.split("\0") if name]
