"""`python3 install.py TARGET REQUIREMENTS`: installs locked wheels into the folder TARGET, with pip
where the image's Python has it, else with uv (vLLM's CPU image has uv alone). Build time only."""

import importlib.util
import os
import shutil
import sys

OPTIONS = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]


def installer() -> list[str]:
    """The command that installs for this Python."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--no-cache-dir"]
    for uv in ("uv", "/root/.local/bin/uv", "/usr/local/bin/uv"):
        if found := shutil.which(uv):
            return [found, "pip", "install", "--no-cache", "--python", sys.executable]
    sys.exit(
        f"install: found neither pip nor uv for {sys.executable}; fix: choose another VLLM_IMAGE"
    )


def main(target: str, requirements: str) -> None:
    """Replaces this process by the installer."""
    command = [*installer(), *OPTIONS, "--target", target, "-r", requirements]
    os.execv(command[0], command)  # noqa: S606 - no shell is what is wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
