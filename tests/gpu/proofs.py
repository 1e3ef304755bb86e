"""One case run and judged: what was seen, and what is wrong with it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launcher import manifest

from gpu import engine, load, shapes
from gpu.cases import Case
from gpu.engine import Launched, Place

START_S = 420.0
LARGEST_WARM_SHARE = 0.40
Row = dict[str, Any]


def prove(case: Case, place: Place, tokenizer: Path, device: str) -> Row:
    """The row of results; `wrong` is empty when all is as it has to be."""
    began = time.monotonic()
    folder = tokenizer if device == "cpu" else shapes.make(case.shape, tokenizer, place.work)
    made = manifest.Manifest(str(folder), "", folder.name, str(folder), None)
    (place.work / "models").mkdir(exist_ok=True)
    manifest.write(place.work / "models", made)
    if case.cold:
        shutil.rmtree(place.caches, ignore_errors=True)
    run = {"ready": _ready, "kv": _kv, "refused": _refused, "nothing_fits": _refused,
           "worker": _worker}[case.kind]  # fmt: skip
    row = run(case, place, folder, device)
    return {"case": case.name, "shape": case.shape, "settings": dict(case.env), **row,
            "seconds": round(time.monotonic() - began, 1)}  # fmt: skip


def _settings(case: Case, folder: Path, device: str) -> dict[str, str]:
    given = {"MODEL": str(folder), **case.env}
    if case.largest:
        fitted = fit(given, folder)
        given["MAX_MODEL_LEN"] = str(fitted["max_context"])
    if device == "cpu":  # real weights, and no card to put dummy ones on
        given.pop("VLLM_EXTRA_ARGS", None)
    return given


def fit(given: dict[str, str], folder: Path) -> dict[str, Any]:
    """What `python -m fit` says of this host and these settings."""
    env = engine.environment(Place(folder.parent, folder.parent), "cuda", given)
    done = subprocess.run(
        [sys.executable, "-m", "fit", str(folder), "--json"],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def _ready(case: Case, place: Place, folder: Path, device: str) -> Row:
    with engine.launched(place, device, _settings(case, folder, device)) as running:
        told = running.until("ready", START_S)
        if told.get("phase") != "ready":
            return {"wrong": [f"not ready: {running.last_line()}"]}
        loads = [asdict(load.run(running.port, "default", many)) for many in case.streams]
        time.sleep(1.5)  # numbers are at most a second old
        row = _seen(running.status()) | {"load": loads}
        row["wrong"] = [*_graphs(case, row, device), *_prediction(case, row), *_load(row),
                        *_metrics(running)]  # fmt: skip
    row["memory_after_mib"] = engine.memory_used()
    if any(used > 1024 for used in row["memory_after_mib"]):
        row["wrong"].append(f"memory still in use after the stop: {row['memory_after_mib']} MiB")
    return row


def _seen(status: dict[str, Any]) -> Row:
    kv = status.get("kv_cache") or {}
    return {
        "graphs": status.get("graphs") or {},
        "kv_tokens": kv.get("tokens"),
        "kv_predicted": kv.get("predicted_tokens"),
        "difference": kv.get("difference"),
        "start": status.get("start") or {},
        "debug": status.get("debug"),
        "api_servers": status.get("api_servers"),
    }


def _graphs(case: Case, row: Row, device: str) -> list[str]:
    verdict = row["graphs"].get("verdict")
    wanted = "not applicable" if device == "cpu" else "eager" if row["debug"] else "in force"
    if verdict != wanted:
        return [f"graphs {verdict} ({row['graphs'].get('reason')}), wanted {wanted}"]
    if wanted != "in force" or not case.streams:
        return []
    decode = row["graphs"]["steps"]["decode"]
    if not decode.get("FULL", 0) + decode.get("PIECEWISE", 0):
        return [f"no decode step ran in a graph: {decode}"]
    return []


def _prediction(case: Case, row: Row) -> list[str]:
    off = row["difference"]
    if off is None:
        return ["no KV-cache prediction beside vLLM's number"]
    return [f"KV cache {off:+.1%} off its prediction"] if abs(off) > case.within else []


def _load(row: Row) -> list[str]:
    return [f"{one['failed']} of {one['streams']} streams failed" for one in row["load"]
            if one["failed"]]  # fmt: skip


def _metrics(running: Launched) -> list[str]:
    """The launcher's and vLLM's pages count the same steps."""
    name = "engine_graph_steps_total"
    own = counters(running.page(running.status_port, "/metrics"), name)
    vllms = counters(running.page(running.port, "/metrics"), name)
    return [] if own == vllms else [f"metrics differ: launcher {own}, vLLM {vllms}"]


def counters(text: str, name: str) -> dict[str, float]:
    """Labels (sorted) → value, of the samples that are not 0."""
    found = {}
    for labels, value in re.findall(rf"^{name}\{{([^}}]*)\}} (\S+)$", text, re.MULTILINE):
        kept = sorted(one for one in labels.split(",") if one.startswith(("kind=", "mode=")))
        if float(value):
            found[",".join(kept)] = float(value)
    return found


def _kv(case: Case, place: Place, folder: Path, device: str) -> Row:
    settings = _settings(case, folder, device)
    with engine.launched(place, device, settings) as running:
        row = _seen(running.until("kv", START_S)) | {"context": settings.get("MAX_MODEL_LEN")}
        if row["kv_tokens"] is None:
            return row | {"wrong": [f"did not come up: {running.last_line()}"]}
        row["wrong"] = _prediction(case, row)
    return row


def _refused(case: Case, place: Place, folder: Path, device: str) -> Row:
    with engine.launched(place, device, _settings(case, folder, device)) as running:
        told = running.until("ready", START_S)
        code = running.process.poll()
        line = running.last_line()
    wrong = []
    if code in (None, 0) or told.get("phase") == "ready":
        wrong.append(f"it was not refused (phase {told.get('phase')}, exit {code})")
    if case.words not in line:
        wrong.append(f"its line lacks {case.words!r}")
    return {"exit": code, "line": line, "wrong": wrong}


def _worker(case: Case, place: Place, folder: Path, _: str) -> Row:
    words = shlex.split(case.env["VLLM_EXTRA_ARGS"])
    code, output, answered = engine.direct(place, folder, words, START_S)
    lines = [line for line in output.splitlines() if "RuntimeError" in line and case.words in line]
    wrong = []
    if answered or code == 0:
        wrong.append(f"it was not refused (answered: {answered}, exit {code})")
    if not lines:
        wrong.append(f"no line with {case.words!r}: {output.strip().splitlines()[-1:]}")
    return {"exit": code, "line": lines[-1].strip() if lines else "", "wrong": wrong}


def against_each_other(rows: list[Row]) -> list[str]:
    """What only two cases together show. Where nothing is compiled, no start is cold."""
    starts = {row["case"]: row.get("start") or {} for row in rows}
    cold, warm = starts.get("in-force", {}), starts.get("warm", {})
    if cold.get("compile_cache") != "cold" or not warm.get("seconds"):
        return []
    share = warm["seconds"] / cold["seconds"]
    return [f"warm start {share:.2f} of the cold one"] if share > LARGEST_WARM_SHARE else []
