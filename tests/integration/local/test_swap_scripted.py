"""A change of model under load, and back where the next one fails; the engine is scripted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from common.callers import Callers
from common.checkout import Checkout
from common.scripted_stack import PATH, scripted, status, tiny_model
from stackctl.layout import Layout

pytestmark = pytest.mark.timeout(180)
FIRST, SECOND = "/models/tiny", "/models/second"
SCRIPTS = {"second": "serves", "dies": "exit0", "no-graphs": "refuses",
           "smollm2-135m-instruct": "wrong town"}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = scripted(tmp_path_factory.mktemp("swap"), "serves")
    for name, script in SCRIPTS.items():
        tiny_model(Layout(made.root).models / name, script)
    yield made
    made.stack("down", env=PATH, timeout=60)


@pytest.fixture
def stack(whole: Checkout) -> Checkout:
    """Serving the first model, whatever the test before left."""
    if served(whole) != "tiny":
        whole.set_env(MODEL=FIRST)
        done = whole.stack("up", env=PATH, timeout=100)
        assert done.returncode == 0, done.stderr
    return whole


def served(made: Checkout) -> str | None:
    told = status(made)
    return told["model"] if told["ready"] else None


def env(made: Checkout) -> bytes:
    return Layout(made.root).env_file.read_bytes()


def pids(made: Checkout) -> dict[str, str]:
    text = made.stack("status", env=PATH).stdout
    return dict(re.findall(r"(vllm|gateway|nginx)\s+running \(pid (\d+)\)", text))


def callers(made: Checkout) -> Callers:
    port = json.loads(Layout(made.root).ports.read_text())["nginx"]
    key = made.stack("key", "show", "default", env=PATH).stdout.strip()
    return Callers(port, key, every_s=0.2)


def swap(made: Checkout, *words: str) -> subprocess.CompletedProcess[str]:
    return made.stack("swap", *words, env=PATH, timeout=100)


def test_there_and_back_under_load(stack: Checkout) -> None:
    before = pids(stack)
    with callers(stack) as clients:
        there = swap(stack, SECOND)
        assert there.returncode == 0, there.stderr
        assert served(stack) == "second"
        back = swap(stack, FIRST)
        assert back.returncode == 0, back.stderr
    assert clients.failed == []
    assert clients.models == {"tiny", "second"}
    assert "MODEL: /models/tiny -> /models/second" in there.stdout
    assert "plan: in place" in there.stdout
    after = pids(stack)
    assert before["vllm"] != after["vllm"]
    assert (before["gateway"], before["nginx"]) == (after["gateway"], after["nginx"])
    assert env(stack).decode().splitlines()[-1] == f"MODEL={FIRST}"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("dies", "vLLM ended by itself with exit status 0"),
        ("no-graphs", "CUDA graphs: nothing was captured"),
        ("smollm2-135m-instruct", "the engine computes wrongly"),
    ],
)
def test_a_model_that_fails_gives_way_to_the_one_before(
    stack: Checkout, model: str, reason: str
) -> None:
    before = env(stack)
    with callers(stack) as clients:
        done = swap(stack, f"/models/{model}")
    assert done.returncode == 1
    assert reason in done.stderr.splitlines()[-1]
    assert done.stderr.count("\n") == 1
    assert f"back: {FIRST} serves again" in done.stdout
    assert env(stack) == before
    assert not Layout(stack.root).failed_env.exists()
    assert served(stack) == "tiny"
    assert [each for each in clients.failed if "smollm2" not in each.model] == []


def test_an_edited_env_that_fails_is_kept_beside_the_one_that_serves(stack: Checkout) -> None:
    before = env(stack)
    stack.set_env(MODEL="/models/dies")
    edited = env(stack)
    done = stack.stack("up", env=PATH, timeout=100)
    assert done.returncode == 1
    assert "vLLM ended by itself" in done.stderr
    assert (env(stack), Layout(stack.root).failed_env.read_bytes()) == (before, edited)
    assert "the settings that failed are in .env.failed" in done.stdout
    assert served(stack) == "tiny"
    assert stack.stack("up", env=PATH, timeout=60).returncode == 0
    assert not Layout(stack.root).failed_env.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("/models/nope",),
        (SECOND, "MAX_MODEL_LEN=many"),
        (SECOND, "NGINX_PORT=1"),
        ("--preset", "nope"),
        (),
        (SECOND, "TENSOR_PARALLEL_SIZE=0"),
    ],
)
def test_what_is_refused_at_once_touches_nothing(stack: Checkout, words: tuple[str, ...]) -> None:
    before, running = env(stack), pids(stack)
    done = swap(stack, *words)
    assert done.returncode != 0
    assert done.stdout + done.stderr != ""
    assert (env(stack), pids(stack)) == (before, running)
    assert served(stack) == "tiny"


def test_a_rehearsal_changes_nothing(stack: Checkout) -> None:
    before, running = env(stack), pids(stack)
    done = swap(stack, SECOND, "MAX_NUM_SEQS=32", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "MAX_NUM_SEQS: (unset) -> 32" in done.stdout
    assert "dry run: nothing was changed" in done.stdout
    assert (env(stack), pids(stack)) == (before, running)
    assert swap(stack, "/models/nope", "--dry-run").returncode != 0


def test_the_environment_that_would_win_is_named(stack: Checkout) -> None:
    done = stack.stack("swap", SECOND, env={**PATH, "MODEL": "x"}, timeout=60)
    assert done.returncode == 2
    assert "found MODEL set in the environment" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("stage", ["plan: in place", "mode: local", "started: vllm", "engine: "])
def test_interrupted_anywhere_then_up(stack: Checkout, stage: str, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [str(stack.root / "scripts/stack"), "swap", SECOND],
        env=stack.env(PATH), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if stage in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGKILL), out + err
    if number != signal.SIGKILL:
        assert env(stack).decode().splitlines()[-1] == f"MODEL={FIRST}"
        until_served(stack, "tiny")  # without another word
    wanted = env(stack).decode().rpartition("/models/")[2].strip()  # killed: what it had written
    done = stack.stack("up", env=PATH, timeout=100)
    assert done.returncode == 0, done.stderr
    assert served(stack) == wanted
    assert callers(stack).once(stream=True).wrong == ""


def until_served(made: Checkout, model: str) -> None:
    deadline = time.monotonic() + 60
    while served(made) != model:
        assert time.monotonic() < deadline, status(made)
        time.sleep(0.5)
