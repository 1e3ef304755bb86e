"""The names of vLLM's tool-call and reasoning parsers, read from its source without running it.

    python tests/tools/vllm_parsers.py 0.33.0 vllm > tests/data/vllm_parsers.json

Takes the version and a `vllm` folder (installed, or of an unpacked wheel).
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

TABLES = {
    "tools": ("tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER"),
    "reasoning": ("reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER"),
}


def names(source: str, table: str) -> list[str]:
    """Keys of the dictionary called `table` in `source`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == table:
            return sorted(ast.literal_eval(node.value))
    raise SystemExit(f"found no {table}; wanted vLLM's table of parsers; fix: look where it went")


def main(version: str, place: Path) -> None:
    found = {kind: names((place / file).read_text(), name) for kind, (file, name) in TABLES.items()}
    sys.stdout.write(json.dumps({"vllm": version, **found}, indent=1) + "\n")


main(sys.argv[1], Path(sys.argv[2]))
