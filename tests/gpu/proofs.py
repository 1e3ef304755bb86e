"""One case run and judged: what was seen, and what is wrong with it."""

from __future__ import annotations

import http.client
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher.host import caches
from launcher.model import manifest

from gpu import cases, engine, fitting, gpus, judge, load, shapes
from gpu.cases import Case
from gpu.engine import Launched, Place, Status
from gpu.fitting import FitFailed
from gpu.judge import Row

SETTLE_S = 5.0  # counters are written by workers, read by others, and scraped once a second
# What only a GPU's launcher takes; the CPU runs real weights.
NOT_ON_CPU = ("VLLM_EXTRA_ARGS", "REQUIRE_CUDA_GRAPHS")
CPU_STREAMS = 8
SHAPES = "shapes"  # beside the caches: vLLM's key of compiled code has the model's path in it


@dataclass(frozen=True)
class Run:
    """One case in its place. `host`: GPU and vLLM, in words."""

    case: Case
    place: Place
    tokenizer: Path
    folder: Path
    device: str
    host: str


def prove(case: Case, place: Place, tokenizer: Path, device: str, host: str) -> Row:
    """The row of results; `wrong` is empty when all is as it has to be."""
    began, used = time.monotonic(), gpus.memory_used() if case.kind != "refused" else []
    folder = (
        tokenizer if device == "cpu" else shapes.make(case.shape, tokenizer, place.caches / SHAPES)
    )
    _prepare(case, place, folder)
    try:
        row = KINDS[case.kind](Run(case, place, tokenizer, folder, device, host))
    except (OSError, http.client.HTTPException, ValueError, KeyError,
            subprocess.SubprocessError, FitFailed) as error:  # fmt: skip
        row = {"wrong": [f"{type(error).__name__}: {error}"]}
    if used:
        after = gpus.freed(used)
        row |= {"memory_mib": {"before": used, "after": after}}
        if gpus.still_used(used, after):
            row["wrong"].append(f"GPU memory in use after the stop: {after} MiB, before: {used}")
    return {"case": case.name, "shape": case.shape, "settings": dict(case.env), **row,
            "seconds": round(time.monotonic() - began, 1)}  # fmt: skip


def _prepare(case: Case, place: Place, folder: Path) -> None:
    """The manifest as a download leaves it, files that settings name, and empty caches."""
    made = manifest.Manifest(str(folder), "", folder.name, str(folder), None)
    manifest.write(place.work / "models", made)
    for name, text in cases.FILES.items():
        (place.work / name).write_text(text)
    if case.cold and place.caches.is_dir():
        for old in place.caches.iterdir():
            if caches.KEY.fullmatch(old.name):  # nothing else of a folder that the user named
                shutil.rmtree(old)


def _settings(run: Run) -> tuple[dict[str, str], Row]:
    """Settings of the start, and what fit says of them; at the largest, with the longest context
    that fits."""
    given = _given(run)
    if run.device == "cpu":
        return {name: value for name, value in given.items() if name not in NOT_ON_CPU}, {}
    if run.case.largest:
        given["MAX_MODEL_LEN"] = str(_fit(run, given)["max_context"])
    return given, _fit(run, given)


def _given(run: Run) -> dict[str, str]:
    work = str(run.place.work)
    of_case = {name: value.replace(cases.WORK, work) for name, value in run.case.env.items()}
    return {"MODEL": str(run.folder), **of_case}


def _fit(run: Run, given: dict[str, str]) -> Row:
    keys = ("fits", "context", "max_context", "max_concurrency", "kv_cache_tokens", "reason")
    told = fitting.ask(run.place, run.tokenizer, run.case.shape, given)
    return {key: told[key] for key in keys}


def _ready(run: Run) -> Row:
    settings, fit = _settings(run)
    with engine.launched(run.place, run.device, settings) as running:
        told = running.until(lambda _: False)
        if told.get("phase") != "ready":
            return {"fit": fit, "wrong": [f"not ready: {running.last_line()}"]}
        loads = [asdict(load.run(running.port, "default", many)) for many in _streams(run)]
        differ = _settled(running)
        row = _seen(running.status()) | {"load": loads, "fit": fit}
    row["wrong"] = [*_judged(run, row), *judge.loads(row), *differ,
                    *judge.tokens(row, told["graphs"])]  # fmt: skip
    return row


def _streams(run: Run) -> list[int]:
    return [min(many, CPU_STREAMS) if run.device == "cpu" else many for many in run.case.streams]


def _settled(running: Launched) -> list[str]:
    """How the two pages of metrics differ, once they had time not to."""
    end = time.monotonic() + SETTLE_S
    while True:
        own = engine.page(running.status_port, "/metrics")
        differ = judge.pages(own, engine.page(running.port, "/metrics"))
        if not differ or time.monotonic() > end:
            return differ
        time.sleep(0.5)


def _judged(run: Run, row: Row) -> list[str]:
    return [
        *judge.graphs(run.case, row, run.device),
        *judge.start(run.case, row, run.device),
        *judge.prediction(run.case, row),
        *judge.measured(run.case, row, run.host),
        *judge.promise(row),
        *judge.debug(run.case, row),
    ]


def _seen(status: Status) -> Row:
    kv = status.get("kv_cache") or {}
    return {
        "message": status.get("message") or "",
        "graphs": status.get("graphs") or {},
        "kv_tokens": kv.get("tokens"),
        "kv_predicted": kv.get("predicted_tokens"),
        "difference": kv.get("difference"),
        "start": status.get("start") or {},
        "debug": status.get("debug"),
        "api_servers": status.get("api_servers"),
    }


def _has_kv(told: Status) -> bool:
    return bool((told.get("kv_cache") or {}).get("tokens"))


def _compiles(told: Status) -> bool:
    """vLLM told of a graph that it compiled, which no warm start does."""
    return _has_kv(told) or str(told.get("message")).startswith("compiling (")


def _kv(run: Run) -> Row:
    settings, fit = _settings(run)
    with engine.launched(run.place, run.device, settings) as running:
        row = _seen(running.until(_has_kv)) | {"fit": fit}
        if row["kv_tokens"] is None:
            return row | {"wrong": [f"did not come up: {running.last_line()}"]}
    return row | {"wrong": [*judge.prediction(run.case, row), *judge.promise(row)]}


def _another_key(run: Run) -> Row:
    settings, _ = _settings(run)
    with engine.launched(run.place, run.device, settings) as running:
        row = _seen(running.until(_compiles))
    return row | {"wrong": judge.start(run.case, row, run.device)}


def _starts(told: Status) -> bool:
    """Too late to be refused: minutes of a GPU host are not spent on finding that out."""
    return told.get("phase") not in (None, "checking")


def _refused(run: Run) -> Row:
    """Settings of a GPU, whatever is here: most are refused before one is looked for."""
    return _ending(run, _starts)


def _nothing_fits(run: Run) -> Row:
    row, fit = _ending(run, lambda _: False), _fit(run, _given(run))
    row["wrong"] += ["fit says that it fits"] if fit["fits"] else []
    return row | {"fit": fit}


def _ending(run: Run, given_up: Callable[[Status], bool]) -> Row:
    with engine.launched(run.place, "cuda", _given(run)) as running:
        told = running.until(given_up)
        code, line = running.process.poll(), running.last_line()
    wrong = judge.refused(run.case, code, told.get("phase"), line)
    return {"exit": code, "line": line, "wrong": wrong}


def _worker(run: Run) -> Row:
    words = shlex.split(run.case.env["VLLM_EXTRA_ARGS"])
    code, output, answered = engine.direct(run.place, run.folder, words)
    said = [line.strip() for line in output.splitlines()
            if "RuntimeError" in line and run.case.words in line]  # fmt: skip
    wrong = []
    if answered or code == 0:
        wrong.append(f"it was not refused (answered: {answered}, exit {code})")
    if not said:
        wrong.append(f"no line with {run.case.words!r}: {output.strip().splitlines()[-1:]}")
    return {"exit": code, "line": said[-1] if said else "", "wrong": wrong}


KINDS: dict[str, Callable[[Run], Row]] = {
    "ready": _ready,
    "kv": _kv,
    "another_key": _another_key,
    "refused": _refused,
    "worker": _worker,
    "nothing_fits": _nothing_fits,
}
