"""The plugin graphproof inside the real CPU engine: what it reports, counts and exports."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from common.engine import Running, embedded_model, get
from graphproof import counts, report, verdict
from graphproof.counts import Counts

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
PROMPT = "Tell me about the sea."


@pytest.fixture(scope="module")
def started(
    engine_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Path]]:
    """The engine with a list of plugins that leaves ours out, graphs required, and its folder."""
    folder = tmp_path_factory.mktemp("proof")
    (folder / "tmp").mkdir()
    running = Running(
        engine_python,
        folder,
        embedded_model(engine_python, folder),
        TMPDIR=str(folder / "tmp"),
        VLLM_PLUGINS="lora_filesystem_resolver",
        REQUIRE_CUDA_GRAPHS="true",
    )
    try:
        running.until_ready()
        (written,) = (folder / "tmp").rglob("worker-dp0-rank0.json")
        yield running, written.parent
    finally:
        running.stop()


def ask(running: Running, tokens: int, prompt: str = PROMPT) -> dict[str, int]:
    """The usage of a chat of exactly so many tokens."""
    body: dict[str, object] = {
        "model": "default",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    usage: dict[str, int] = get(f"{running.engine}/v1/chat/completions", body)["usage"]
    assert usage["completion_tokens"] == tokens
    return usage


def exported(running: Running) -> tuple[counts.Table, counts.Table]:
    """Steps and tokens as vLLM's own /metrics has them."""
    with urllib.request.urlopen(f"{running.engine}/metrics", timeout=30) as answer:  # noqa: S310
        text = answer.read().decode()
    found = []
    for name in ("engine_graph_steps_total", "engine_graph_step_tokens_total"):
        table = Counts().steps
        rows = re.findall(rf'^{name}{{kind="(\w+)",mode="(\w+)"}} ([\d.e+]+)$', text, re.MULTILINE)
        assert len(rows) == 6
        for kind, mode, value in rows:
            table[kind][mode] = int(float(value))
        found.append(table)
    assert 'engine_graphs_captured{mode="FULL"} 0.0' in text
    assert "vllm:generation_tokens_total" in text
    return found[0], found[1]


def both(seen: counts.Table, kind: str) -> int:
    assert seen[kind]["FULL"] == seen[kind]["PIECEWISE"] == 0
    return seen[kind]["NONE"]


def test_the_worker_reported(started: tuple[Running, Path]) -> None:
    running, folder = started
    (made,) = report.read_all(folder)
    assert made.error is None
    assert (made.device, made.kind, made.mode) == ("cpu", "generate", "NONE")
    assert (made.full_sizes, made.piecewise_sizes, made.graphs) == ((), (), 0)
    assert made.enforce_eager
    assert any("Enforce eager set" in note for note in made.notes)  # the API process said it
    assert made.vllm == running.status()["engine_version"]
    judged = verdict.judge([made], 1, counts.read_all(folder), "cpu")
    assert judged.verdict == "not applicable"
    assert running.status()["graphs"]["verdict"] == "not applicable"


def test_each_token_after_the_first_is_a_decode_step(started: tuple[Running, Path]) -> None:
    """The first one comes out of the step that has the prompt in it."""
    running, folder = started
    before = counts.read_all(folder)
    usage = ask(running, 16)
    after = counts.read_all(folder)
    assert both(after.steps, "decode") - both(before.steps, "decode") == 15
    assert both(after.tokens, "decode") - both(before.tokens, "decode") == 15
    assert both(after.steps, "prefill") - both(before.steps, "prefill") == 1
    prompt = both(after.tokens, "prefill") - both(before.tokens, "prefill")
    assert prompt == usage["prompt_tokens"]


def test_side_by_side_no_token_is_lost(started: tuple[Running, Path]) -> None:
    running, folder = started
    before = counts.read_all(folder)
    with ThreadPoolExecutor(8) as pool:
        usages = list(pool.map(lambda n: ask(running, 4 + n, f"{PROMPT} {n}"), range(8)))
    after = counts.read_all(folder)
    ran = sum(both(after.tokens, kind) - both(before.tokens, kind) for kind in counts.KINDS)
    made = sum(usage["prompt_tokens"] + usage["completion_tokens"] - 1 for usage in usages)
    assert ran == made
    assert after.largest_eager_decode_tokens > 1


def test_vllms_own_metrics_have_the_same(started: tuple[Running, Path]) -> None:
    running, folder = started
    ask(running, 2)
    end = time.monotonic() + 10
    while True:
        numbers = counts.read_all(folder)
        if exported(running) == (numbers.steps, numbers.tokens) or time.monotonic() > end:
            break
        time.sleep(0.2)
    assert exported(running) == (numbers.steps, numbers.tokens)
    graphs: dict[str, Any] = running.status()["graphs"]
    assert graphs["workers"] == 1


def test_vllm_logs_its_statistics_as_ever(started: tuple[Running, Path]) -> None:
    """A logger of ours beside its own switches none of them off."""
    running, _ = started
    output = running.errors.with_name("out")
    end = time.monotonic() + 30
    while "Avg generation throughput" not in output.read_text() and time.monotonic() < end:
        ask(running, 2)
        time.sleep(1)
    assert "Avg generation throughput" in output.read_text()
    assert "graphproof:" not in output.read_text()
