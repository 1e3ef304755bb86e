"""Graphs required means graphs proven: what the workers report, and what the launcher makes of it.

The launcher runs as a process over scripted_vllm, which writes reports with the plugin's own code.
Only a GPU can show that real workers write them: tests/gpu.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from graphproof.downgrades import Downgrade
from graphproof.report import WorkerReport
from graphproof.verdict import Verdict
from launched import Launcher, Start, until
from launcher.cudagraphs import graphstatus, plugin, proofdir, workers
from launcher.cudagraphs.graphs import Finding
from launcher.cudagraphs.proof import Known, Proof, Prover, shown
from launcher.readiness import refusal
from reports import EAGER, IN_FORCE, PARTLY, written

ON_GPU = {"ENGINE_DEVICE": "cuda"}


def environment(launcher: Launcher) -> dict[str, str]:
    text = Path(f"/proc/{launcher.pids()[0]}/environ").read_text()
    return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)


def folders(launcher: Launcher) -> list[Path]:
    return list(launcher.temporary.glob(f"{proofdir.PREFIX}*"))


def never_ready(launcher: Launcher) -> bool:
    return "engine: ready" not in launcher.errors.read_text()


def test_graphs_in_force(start: Start) -> None:
    launcher = start("drains", REPORTS=written(IN_FORCE), **ON_GPU)
    graphs = launcher.wait_for("ready")["graphs"]
    assert graphs["verdict"] == "in force"
    assert graphs["mode"] == "FULL_AND_PIECEWISE"
    assert graphs["full_sizes"][-1] == graphs["piecewise_sizes"][-1] == 512
    assert (graphs["captured"], graphs["workers"]) == (86, 1)
    assert (graphs["capture_s"], graphs["compile_s"]) == (5.0, 20.7)
    assert graphs["capture_bytes"] == 1_052_266_987
    assert graphs["steps"]["decode"] == {"FULL": 0, "PIECEWISE": 0, "NONE": 0}
    assert graphs["decode_without_graph"] == {
        "steps_share": None, "tokens_share": None, "largest_batch_tokens": None,
    }  # fmt: skip
    given = environment(launcher)
    assert given["ENGINE_REQUIRE_GRAPHS"] == "1"
    (folder,) = folders(launcher)
    assert given["ENGINE_PROOF_DIR"] == str(folder)
    assert (folder.stat().st_mode & 0o777) == 0o700
    assert "VLLM_PLUGINS" not in given  # unset, vLLM loads them all
    assert "engine: graphs: in force: " in launcher.errors.read_text()
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.ended() == 0
    assert folders(launcher) == []


def test_steps_without_a_graph_change_the_verdict(start: Start) -> None:
    launcher = start("drains", REPORTS=written(IN_FORCE), **ON_GPU)
    assert launcher.wait_for("ready")["graphs"]["verdict"] == "in force"
    Path(f"{launcher.pids_file}.steps").touch()
    assert until(lambda: launcher.status()["graphs"]["verdict"] == "partly", 5)
    graphs = launcher.status()["graphs"]
    assert graphs["decode_without_graph"] == {
        "steps_share": 0.2, "tokens_share": 0.993377, "largest_batch_tokens": 600,
    }  # fmt: skip
    assert graphs["steps"]["decode"] == {"FULL": 200, "PIECEWISE": 0, "NONE": 50}
    assert graphs["tokens"]["decode"] == {"FULL": 200, "PIECEWISE": 0, "NONE": 30_000}
    assert 'engine_graph_steps_total{kind="decode",mode="NONE"} 50' in launcher.metrics()
    assert 'engine_graphs_verdict{verdict="partly"} 1' in launcher.metrics()


def test_graphs_partly_in_force_are_told_and_taken(start: Start) -> None:
    launcher = start("drains", REPORTS=written(PARTLY), **ON_GPU)
    graphs = launcher.wait_for("ready")["graphs"]
    assert graphs["verdict"] == "partly"
    assert graphs["reason"]


@pytest.mark.parametrize(
    ("reports", "verdict"), [((EAGER,), "eager"), ((), "unknown")], ids=["eager", "no report"]
)
def test_required_means_proven(
    start: Start, reports: tuple[WorkerReport, ...], verdict: str
) -> None:
    launcher = start("drains", REPORTS=written(*reports), **ON_GPU)
    assert launcher.ended() not in (0, None)
    last = launcher.last_error()
    assert last.startswith(f"engine: failed: CUDA graphs: {verdict}: ")
    assert "set REQUIRE_CUDA_GRAPHS=false" in last
    assert never_ready(launcher)
    assert launcher.leaves_nothing()
    assert folders(launcher) == []


def test_an_engine_that_does_not_stop_when_refused_is_killed(start: Start) -> None:
    launcher = start("stubborn", REPORTS=written(EAGER), **ON_GPU)
    assert launcher.wait_for("failed")["ready"] is False
    # vLLM answers until it is stopped; who waits for it must not take that for ready.
    health = [sys.executable, "-m", "launcher.healthcheck"]
    done = subprocess.run(health, env=launcher.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "eager" in done.stderr
    assert launcher.ended(15) == 128 + signal.SIGKILL
    assert never_ready(launcher)
    assert launcher.leaves_nothing()


def test_a_worker_that_refuses_gives_the_reason(start: Start) -> None:
    launcher = start("refuses", REPORTS=written(EAGER), **ON_GPU)
    assert launcher.ended() == 1
    last = launcher.last_error()
    assert last.startswith("engine: failed: CUDA graphs: nothing was captured; vLLM: 'Cudagraph mo")
    assert last.endswith("and unset TORCH_COMPILE_DISABLE")
    assert never_ready(launcher)


@pytest.mark.parametrize(("reports", "verdict"), [((EAGER,), "eager"), ((), "unknown")])
def test_without_the_demand_it_serves_and_says_so(
    start: Start, reports: tuple[WorkerReport, ...], verdict: str
) -> None:
    launcher = start("drains", REPORTS=written(*reports), REQUIRE_CUDA_GRAPHS="false", **ON_GPU)
    graphs = launcher.wait_for("ready")["graphs"]
    assert graphs["verdict"] == verdict
    assert graphs["reason"]
    assert graphs["fix"]
    assert environment(launcher)["ENGINE_REQUIRE_GRAPHS"] == "0"


def test_a_setting_is_named_from_the_start(start: Start) -> None:
    extra = {"VLLM_EXTRA_ARGS": "--enforce-eager", "REQUIRE_CUDA_GRAPHS": "false"}
    launcher = start("loading", **extra, **ON_GPU)
    graphs = launcher.wait_for("loading")["graphs"]
    assert graphs["verdict"] == "eager"
    assert graphs["reason"] == "VLLM_EXTRA_ARGS: found --enforce-eager"
    assert graphs["fix"] == "take it out"


def test_a_list_of_plugins_gets_ours(start: Start) -> None:
    launcher = start("drains", VLLM_PLUGINS="mine, other", **ON_GPU, REQUIRE_CUDA_GRAPHS="0")
    launcher.wait_for("ready")
    listed = environment(launcher)["VLLM_PLUGINS"].split(",")
    assert listed == ["mine", "other", *plugin.names()]
    assert len(plugin.names()) >= 1


def test_a_file_of_flags_is_refused(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("enforce-eager: true\n")
    launcher = start("drains", VLLM_EXTRA_ARGS=f"--config {path}", **ON_GPU)
    assert launcher.ended() == 3
    assert f"--config {path} with enforce-eager" in launcher.last_error()


def test_debug_mode_is_shouted(start: Start) -> None:
    launcher = start(
        "drains", ENGINE_DEBUG="1", CUDA_LAUNCH_BLOCKING="1", REPORTS=written(EAGER), **ON_GPU
    )
    status = launcher.wait_for("ready")
    assert status["debug"] is True
    assert status["message"].startswith("DEBUG MODE (eager, ")
    assert status["graphs"]["verdict"] == "eager"
    assert status["graphs"]["reason"].startswith("DEBUG")
    given = environment(launcher)
    assert (given["CUDA_LAUNCH_BLOCKING"], given["VLLM_LOGGING_LEVEL"]) == ("1", "DEBUG")
    assert given["ENGINE_REQUIRE_GRAPHS"] == "0"
    command = Path(f"/proc/{launcher.pids()[0]}/cmdline").read_text().split("\0")
    assert command.count("--enforce-eager") == 1
    told = launcher.errors.read_text().splitlines()
    assert told[0].startswith("engine: DEBUG MODE")
    assert all("DEBUG MODE" in line for line in told if line.startswith("engine: ready"))
    assert "engine_debug 1" in launcher.metrics()


def test_what_a_killed_launcher_left_is_removed(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    stale = folder / f"{proofdir.PREFIX}0123"
    stale.mkdir(parents=True)
    (stale / "worker-dp0-rank0.json").write_text("{}")
    other = folder / "something-else"
    other.mkdir()
    with proofdir.made(folder / f"{proofdir.PREFIX}held"):
        launcher = start("drains")
        launcher.wait_for("ready")
        assert not stale.exists()
        assert other.exists()
        assert len(folders(launcher)) == 2  # its own, and one whose launcher runs
    launcher.process.kill()
    launcher.process.wait()
    assert len(folders(launcher)) == 1
    with proofdir.made(proofdir.choose({"TMPDIR": str(folder)})):
        assert len(folders(launcher)) == 1


def test_a_folder_that_can_not_be_made(start: Start) -> None:
    launcher = start("drains", TMPDIR="/proc/1/nothing")
    assert launcher.ended() == 3


def test_the_folder_is_below_tmpdir_and_fresh(tmp_path: Path) -> None:
    first, second = (proofdir.choose({"TMPDIR": str(tmp_path)}) for _ in range(2))
    assert first.parent == second.parent == tmp_path
    assert first != second
    assert proofdir.choose({"TMPDIR": " "}).is_absolute()


LINE = Downgrade("Cudagraph mode X is not compatible with compilation mode 0", "take mode out")
FOUND = Finding("VLLM_EXTRA_ARGS: found -O0 (level 0)", "take it out")
SEEN = Proof(Verdict("eager", "no graph was captured", "look at the log"), (EAGER,))


@pytest.mark.parametrize(
    ("proof", "known", "verdict", "words"),
    [
        (Proof(), Known("cuda"), "unknown", "no report from inside the workers yet"),
        (Proof(), Known("cuda", serving=True), "unknown", "did not load the plugin"),
        (Proof(), Known("cpu"), "not applicable", "CPU"),
        (Proof(), Known("cuda", ruled_out=FOUND), "eager", "-O0"),
        (Proof(), Known("cuda", debug=True, ruled_out=FOUND), "eager", "DEBUG"),
        (SEEN, Known("cuda"), "eager", "no graph was captured"),
        (SEEN, Known("cuda", ruled_out=FOUND), "eager", "-O0"),
        (SEEN, Known("cuda", downgrades=(LINE,)), "eager", "vLLM: 'Cudagraph mode X"),
        # Whatever the settings looked like: what the workers captured counts.
        (Proof(Verdict("in force", "x", ""), (IN_FORCE,)), Known("cuda", ruled_out=FOUND),
         "in force", "x"),
    ],
)  # fmt: skip
def test_what_is_shown(proof: Proof, known: Known, verdict: str, words: str) -> None:
    found = shown(proof, known)
    assert found.verdict == verdict
    assert words in found.reason


def test_a_refusal_without_a_fix_of_its_own() -> None:
    line = refusal(Verdict("unknown", "x", ""))
    assert line.endswith("; fix: set REQUIRE_CUDA_GRAPHS=false")


@pytest.mark.parametrize(
    ("tensor_parallel", "arguments", "count"),
    [
        (1, "", 1),
        (4, "", 4),
        (2, "-pp 2", 4),
        (2, "--pipeline_parallel_size=2 -dp 3", 12),
        (1, "--pipe 2", 2),
        (1, "-dp 2 -dp 4", 4),
        (1, "--prefill-context-parallel-size 2", 2),
        (2, "--decode-context-parallel-size 2", 2),  # within the tensor-parallel ranks
        (1, "--data-parallel-size 4 --data-parallel-size-local 2", None),
        (8, "-n 2", None),
        (8, "--nnodes=2", None),
        (1, "-dp 4 --data-parallel-rank 0", None),
        (1, "-dp x", None),
        (1, "--seed 2", 1),
    ],
)
def test_how_many_workers_will_report(
    tensor_parallel: int, arguments: str, count: int | None
) -> None:
    assert workers.expected(tensor_parallel, tuple(arguments.split())) == count


def test_a_missing_worker_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "worker-dp0-rank0.json").write_text(IN_FORCE.to_json())
    assert Prover(tmp_path, 2, "cuda", lambda: 0.0).now().judged.verdict != "in force"
    assert Prover(tmp_path, 1, "cuda", lambda: 0.0).now().judged.verdict == "in force"
    assert Prover(tmp_path, None, "cuda", lambda: 0.0).now().judged.verdict == "in force"


def test_a_report_of_another_plugin_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "worker-dp0-rank0.json").write_text("{}")
    proof = Prover(tmp_path, 1, "cuda", lambda: 0.0).now()
    found = shown(proof, Known("cuda"))
    assert found.verdict == "unknown"
    assert "worker-dp0-rank0.json" in found.reason


def test_the_folder_is_read_once_a_second(tmp_path: Path) -> None:
    now = [0.0]
    prover = Prover(tmp_path, 1, "cuda", lambda: now[0])
    assert prover.newest().reports == ()
    (tmp_path / "worker-dp0-rank0.json").write_text(IN_FORCE.to_json())
    now[0] = 0.9
    assert prover.newest().reports == ()
    now[0] = 1.1
    assert prover.newest().reports == (IN_FORCE,)


def test_several_workers_are_told_as_one() -> None:
    other = replace(
        IN_FORCE, rank=1, full_sizes=(1, 2, 4), graphs=70, capture_seconds=7.5, compile_seconds=None
    )
    told = graphstatus.as_json(
        Verdict("partly", "ranks differ", ""), Proof(reports=(IN_FORCE, other))
    )
    assert told["full_sizes"] == [1, 2, 4]
    assert (told["captured"], told["capture_s"], told["compile_s"]) == (70, 7.5, 20.7)
    assert told["workers"] == 2
    assert graphstatus.mode((IN_FORCE, PARTLY)) == "FULL_AND_PIECEWISE, PIECEWISE"


def test_the_status_is_there_before_any_report(start: Start) -> None:
    launcher = start("loading", **ON_GPU)
    graphs = launcher.wait_for("loading")["graphs"]
    assert (graphs["verdict"], graphs["workers"], graphs["mode"]) == ("unknown", 0, None)
    assert graphs["full_sizes"] == []
    assert until(lambda: Path(environment(launcher)["ENGINE_PROOF_DIR"]).is_dir())
