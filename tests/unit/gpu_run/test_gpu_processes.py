"""The GPU run's processes: refused launchers, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from common import gpu_host
from gpu import cases, engine, leftover, proofs
from gpu.engine import Place

ROOT = Path(__file__).parents[3]
PROVE = ROOT / "tests/gpu/prove.py"
# A vLLM that starts for ever, with a child in a session of its own.
FOREVER = (
    "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'],"
    " start_new_session=True)\n"
    "time.sleep(300)\n"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A real model's folder, as far as it is read."""
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "config.json").write_text('{"bos_token_id": 1}')
    return folder


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured H200 on PATH, and a package where vLLM is looked for."""
    programs, site = tmp_path / "bin", tmp_path / "site"
    programs.mkdir()
    gpu_host.install("h200", programs)
    (site / "vllm/entrypoints/openai").mkdir(parents=True)
    (site / "vllm/__init__.py").touch()
    (site / "vllm/entrypoints/openai/api_server.py").write_text(FOREVER)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    work = tmp_path / "work"
    work.mkdir()
    made = Place(work, tmp_path / "caches", time.monotonic() + 60, f"{os.getpid()}", lambda _: None)
    yield made
    assert leftover.gone(made.mark, 5) == []


REFUSED = [case for case in cases.CASES if case.kind == "refused"]


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_the_launcher_refuses_in_its_last_line(case: cases.Case, place: Place, model: Path) -> None:
    row = proofs.prove(case, place, model, "cuda", "")
    assert row["wrong"] == []
    assert row["exit"] in (2, 3)


@pytest.mark.usefixtures("host")
def test_what_is_not_refused_is_not_waited_for(place: Place, model: Path) -> None:
    taken = cases.Case(name="x", kind="refused", words="graphs", env={"MAX_MODEL_LEN": "4096"})
    row = proofs.prove(taken, place, model, "cuda", "")
    assert row["wrong"][0].startswith("it was not refused (phase starting, exit None)")
    assert row["seconds"] < 20
    for process in leftover.alive(place.mark):  # the child that left its group
        os.kill(process, signal.SIGKILL)


@pytest.mark.usefixtures("host")
def test_a_start_ends_with_the_budget(place: Place, tmp_path: Path, model: Path) -> None:
    short = Place(place.work, place.caches, time.monotonic() + engine.STOP_S + 3, place.mark,
                  place.say)  # fmt: skip
    case = next(one for one in cases.CASES if one.name == "in-force")
    row = proofs.prove(case, short, model, "cuda", "")
    assert row["wrong"][0].startswith("not ready: engine: starting")
    assert row["seconds"] < 20
    for process in leftover.alive(place.mark):  # the child that left its group
        os.kill(process, signal.SIGKILL)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_that_was_started(number: int, model: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, PROVE, "--model", model, "--out", tmp_path / "out", "--only", "warm"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if "starting vLLM" in line:
            break
    time.sleep(1)
    (mark,) = {_mark(each) for each in _children(process.pid)}
    assert len(leftover.alive(mark)) >= 3  # launcher, guard, vLLM, its child
    process.send_signal(number)
    rest, _ = process.communicate(timeout=40)
    assert "interrupted; results.json has what was done" in rest
    assert process.returncode == 130
    assert leftover.alive(mark) == []


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]


def _mark(process: int) -> str:
    names = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    prefix = f"{leftover.MARK}=".encode()
    return next(name.removeprefix(prefix).decode() for name in names if name.startswith(prefix))


@pytest.mark.usefixtures("host")
def test_cold_caches_are_the_launchers_alone(place: Place, model: Path) -> None:
    """--caches may name any folder: what else is there stays."""
    ours, theirs = place.caches / ("0" * 16), place.caches / "thesis"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
    cold = cases.Case(name="x", kind="refused", cold=True, words="-O0",
                      env={"VLLM_EXTRA_ARGS": "-O0"})  # fmt: skip
    assert proofs.prove(cold, place, model, "cuda", "")["wrong"] == []
    assert (ours.exists(), theirs.exists()) == (False, True)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "found no --model DIR"),
        (["--model", "/nonexistent", "--out", "/tmp/x"], "found no --model DIR"),
        (["--merge", "/nonexistent"], "found no results.json in /nonexistent"),
    ],
)
def test_bad_input_is_one_line(words: list[str], found: str) -> None:
    done = subprocess.run(
        [sys.executable, PROVE, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(found)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("host")
def test_two_gpus_are_wanted_in_one_line(model: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROVE, "--model", model, "--out", tmp_path / "out", "--only", "tp2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "found 1 GPU; wanted 2 for tp2\n")


def test_a_run_of_no_case_proves_nothing(model: Path, tmp_path: Path) -> None:
    words = ["--device", "cpu", "--only", "shape", "--model", str(model), "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(PROVE), *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "found no case of shape for a CPU; wanted one that --list marks"
    ]


def test_the_list_needs_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-I", PROVE, "--list"], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == len(cases.CASES)
