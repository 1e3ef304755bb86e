"""Imports point one way: a module imports only from its own row's rules and the rows below."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Highest first. A module imports modules of lower rows; the two lowest rows also within a row.
ROWS = (
    ("__main__", "worker"),
    ("app", "server", "workers"),
    ("background",),
    ("state",),
    ("routes",),
    ("auth", "relay", "bound"),
    (
        *("admission", "limits", "shared", "upstream", "sse", "streams", "usage", "health"),
        *("drain", "answer", "client", "lane", "ledger", "watchdog"),
    ),
    (
        *("settings", "errors", "forms", "cors", "metrics", "log", "lines", "keys", "keyfields"),
        *("fairqueue", "gate"),
    ),
)


LOWEST = len(ROWS) - 2


def modules(package: Path) -> dict[str, Path]:
    """Dotted name below the package -> file."""
    return {
        ".".join(p.relative_to(package).with_suffix("").parts): p for p in package.rglob("*.py")
    }


def imported(path: Path, package: str) -> set[str]:
    """Names of the package's own modules that a file imports, relative to the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            targets = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        found |= {t.removeprefix(f"{package}.") for t in targets if t.startswith(f"{package}.")}
    return found


def row(name: str) -> int | None:
    head = name.split(".")[0]
    return next((i for i, names in enumerate(ROWS) if head in names), None)


@pytest.mark.parametrize("name", sorted(modules(ROOT / "gateway")))
def test_every_gateway_module_has_a_row(name: str) -> None:
    assert name == "__init__" or row(name) is not None, f"give gateway/{name} a row in ROWS"


@pytest.mark.parametrize(("name", "path"), sorted(modules(ROOT / "gateway").items()))
def test_gateway_imports_point_down(name: str, path: Path) -> None:
    own = row(name)
    for target in imported(path, "gateway"):
        below = row(target)
        if own is None or below is None:
            continue
        same_place = target.split(".")[0] == name.split(".")[0]
        assert below > own or same_place or below == own >= LOWEST, f"{name} imports {target}"


def test_the_map_of_the_gateway_names_each_module_once() -> None:
    """gateway/__init__.py says where things live; a folder ends with a slash there."""
    package = ROOT / "gateway"
    drawn = re.findall(r"^    .{17}(.+)$", (package / "__init__.py").read_text(), re.MULTILINE)
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert sorted(" ".join(drawn).split()) == sorted(files | folders)


# Packages of ours that another one imports. The CLI and the launcher don't know each other. What
# the launcher uses of fit knows nothing of the launcher; fit's command reads settings with it.
KNOWS = {"launcher": ("graphproof", "fit")}


@pytest.mark.parametrize(
    "path", [*(ROOT / "scripts/stackctl").rglob("*.py"), *(ROOT / "docker/engine").rglob("*.py")]
)
def test_operator_and_engine_code_needs_only_the_standard_library(path: Path) -> None:
    """The CLI runs before anything is installed; the launcher runs in images that are not ours.

    Exceptions run where the engine's packages are: fetch and embedded, and what of the plugin runs
    inside vLLM alone.
    """
    below = path.relative_to(ROOT / ("scripts" if "stackctl" in path.parts else "docker/engine"))
    package = below.parts[0].removesuffix(".py")
    allowed = set(sys.stdlib_module_names) | {package, *KNOWS.get(package, ()), "__future__"}
    if path.parent.name == "fit" and path.stem == "__main__":
        allowed |= {"launcher"}
    if path.stem in {"fetch", "embedded", "hub"}:
        allowed |= {"huggingface_hub", "transformers", "torch", "gguf"}
    if package == "graphproof" and path.stem in {"inside", "statlogger"}:
        allowed |= {"prometheus_client", "torch", "vllm"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            assert name.split(".")[0] in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_the_rows_of_the_command_line_are_true() -> None:
    """The drawing in stackctl/__init__.py: nothing imports from a row above its own."""
    package = ROOT / "scripts" / "stackctl"
    drawn = [
        re.split(r" {2,}", line.strip())
        for line in (package / "__init__.py").read_text().splitlines()
        if line.startswith("    ")
    ]
    known = {name for name in modules(package) if not name.endswith("__init__")}
    rank = {name: row for row, names in enumerate(drawn) for name in names if name in known}
    assert rank.keys() == known
    for name, path in modules(package).items():
        for target in imported(path, "stackctl") & rank.keys():
            assert name.endswith("__init__") or rank[target] >= rank[name], (
                f"{name} imports {target}"
            )
