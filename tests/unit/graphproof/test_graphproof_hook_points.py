"""What the plugin touches of vLLM is there in each version that was looked at."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tools import vllm_hooks

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "docker/engine/graphproof"
FILES = sorted((ROOT / "tests/data/vllm_hooks").glob("*.json"))
WORKER = f"{vllm_hooks.WORKER}:Worker"
# (missing, where) that the code knows about: what stands in its place is there.
ELSEWHERE = {
    ("total_consumed", WORKER),  # 0.24 has non_torch_memory
    ("non_torch_memory", WORKER),  # later ones have total_consumed
    ("capture_model", f"{vllm_hooks.WORKER}:compile_or_warm_up_model"),
    ("capture_model", f"{vllm_hooks.WORKER}:_compile_or_warm_up_model"),
}


def data(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_each_version_of_the_stack_was_looked_at() -> None:
    """The lists of routes are of every version that the stack runs or was measured with."""
    routes = (ROOT / "tests/data/vllm_routes").glob("*.json")
    assert [path.stem for path in FILES] == sorted(path.stem for path in routes)
    assert len(FILES) >= 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_missing(path: Path) -> None:
    found = data(path)
    missing = {
        (name, where)
        for kind, wanted in (("members", vllm_hooks.MEMBERS), ("calls", vllm_hooks.CALLS))
        for where, names in wanted.items()
        for name in set(names.split()) - set(found[kind][where])
    }
    assert missing <= ELSEWHERE
    # One of two of each pair.
    assert len(missing) == 2
    (returned,) = found["returns"].values()
    assert returned.startswith("tuple[CUDAGraphMode, ")


def words(node: ast.AST) -> set[str]:
    """The parts of dotted paths in the strings below a node."""
    strings = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    dotted = [each for each in strings if isinstance(each, str) and re.fullmatch(r"[\w.]+", each)]
    return {part for each in dotted for part in each.split(".") if part}


def test_every_path_of_the_code_is_in_the_list() -> None:
    """So that a name that the code begins to use has to be looked up in all versions, too."""
    tree = ast.parse((PACKAGE / "inside.py").read_text())
    paths: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"get", "maybe"} and ast.unparse(node.func.value) != "numbers":
                paths |= words(node.args[0])
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            paths |= {part for each in node.value.values for part in words(each)}
    assert {"cudagraph_dispatcher", "init_snapshot", "data_parallel_index"} <= paths
    listed = {name for names in vllm_hooks.MEMBERS.values() for name in names.split()}
    assert paths - listed <= {"name"}  # of an enum's member


def test_the_tool_sees_what_is_gone(tmp_path: Path) -> None:
    for where in vllm_hooks.MEMBERS:
        file = tmp_path / where.partition(":")[0]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "config/device.py").write_text("class DeviceConfig:\n    device_type: str\n")
    (tmp_path / "compilation/counter.py").write_text("class CompilationCounter:\n    other = 1\n")
    seen = vllm_hooks.read(tmp_path)
    assert seen["members"]["config/device.py:DeviceConfig"] == ["device_type"]
    assert seen["members"]["compilation/counter.py:CompilationCounter"] == []
    assert seen["members"][WORKER] == []
    assert not any(seen["calls"].values())
