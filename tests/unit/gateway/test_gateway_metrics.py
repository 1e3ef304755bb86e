"""Metrics: what a request counts in, with which labels, and what the page says."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from common.servers import base_environment
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from gateway.errors import Overloaded
from gateway.log import Record
from gateway.metrics import Counted, Metrics, Readings, UpstreamReading, edges, metrics, series
from gateway.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
CHAT = "/v1/chat/completions"
ROUTES = [
    Counted(CHAT, ("POST",)),
    Counted("/v1/models", ("GET",)),
    Counted("/metrics", ("GET",), probe=True),
]
NOW = Readings(3, 2, 512, (UpstreamReading(0, True, 3), UpstreamReading(1, False, 0)))
# vLLM 0.32 and 0.33, vllm/v1/metrics/buckets.py.
VLLM_FIRST_TOKEN = """0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80
    160 640 2560"""
VLLM_PER_TOKEN = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
VLLM_LATENCY = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def made() -> Metrics:
    return Metrics(ROUTES, lambda: NOW)


def page(one: Metrics) -> Page:
    return parsed(asyncio.run(one.page()).decode())


def parsed(text: str) -> Page:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Page, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def record(**fields: object) -> Record:
    given = {"route": CHAT, "status": 200, "started": 100.0, "key": "team", "model": "m"}
    one = Record("id", "POST")
    for name, each in {**given, **fields}.items():
        setattr(one, name, each)
    return one


def stream(**fields: object) -> Record:
    return record(stream=True, first_byte_at=130.0, completion_tokens=31, frames=33, **fields)


def test_a_long_stream_lands_in_finite_buckets() -> None:
    """B63: 30 s to the first token, 45 s in all."""
    one = made()
    one.observe(stream(), 145.0)
    found = page(one)
    ends = {"route": CHAT, "outcome": "ok"}
    duration, first = "gateway_request_duration_seconds", "gateway_time_to_first_token_seconds"
    assert value(found, f"{duration}_bucket", le="40.0", **ends) == 0
    assert value(found, f"{duration}_bucket", le="50.0", **ends) == 1
    assert value(found, f"{duration}_sum", **ends) == 45
    assert value(found, f"{duration}_count", **ends) == 1
    assert value(found, f"{first}_bucket", le="20.0") == 0
    assert value(found, f"{first}_bucket", le="40.0") == 1
    assert value(found, "gateway_time_per_output_token_seconds_sum") == 0.5


def test_a_failed_stream_is_counted_under_its_own_outcome() -> None:
    """B63."""
    one = made()
    for outcome in ("client_left", "truncated", "drained"):
        one.observe(stream(outcome=outcome), 145.0)
    found = page(one)
    name = "gateway_request_duration_seconds_count"
    assert value(found, name, route=CHAT, outcome="ok") == 0
    for outcome in ("client_left", "truncated", "drained"):
        assert value(found, name, route="any", outcome=outcome) == 1
    assert value(found, "gateway_time_to_first_token_seconds_count") == 3
    assert value(found, "gateway_time_per_output_token_seconds_count") == 0


@pytest.mark.parametrize(
    "fields",
    [{"outcome": "upstream_error"}, {"first_byte_at": None}, {"stream": False}],
    ids=["error event", "nothing came", "no stream"],
)
def test_no_first_token_where_there_was_none(fields: dict[str, object]) -> None:
    one = made()
    ended = stream()
    for name, each in fields.items():
        setattr(ended, name, each)
    one.observe(ended, 145.0)
    assert value(page(one), "gateway_time_to_first_token_seconds_count") == 0


@pytest.mark.parametrize("fields", [{"completion_tokens": 1}, {"tokens_estimated": True}])
def test_no_time_per_token_from_a_guess(fields: dict[str, object]) -> None:
    one = made()
    ended = stream()
    for name, each in fields.items():
        setattr(ended, name, each)
    one.observe(ended, 145.0)
    found = page(one)
    assert value(found, "gateway_time_per_output_token_seconds_count") == 0
    assert value(found, "gateway_time_to_first_token_seconds_count") == 1


def test_what_a_request_counts_in() -> None:
    one = made()
    one.observe(
        stream(prompt_tokens=7, bytes_in=100, bytes_out=2000, queued_s=0.2, resent=True), 145.0
    )
    one.observe(record(prompt_tokens=5, completion_tokens=3, tokens_estimated=True), 101.0)
    found = page(one)
    assert value(found, "gateway_prompt_tokens_total", key="team", model="m") == 12
    assert value(found, "gateway_completion_tokens_total", key="team", model="m") == 34
    assert value(found, "gateway_estimated_tokens_total") == 8
    assert value(found, "gateway_key_requests_total", key="team", outcome="ok") == 2
    assert value(found, "gateway_received_bytes_total") == 100
    assert value(found, "gateway_sent_bytes_total") == 2000
    assert value(found, "gateway_sse_events_total") == 33
    assert value(found, "gateway_resent_total") == 1
    assert value(found, "gateway_queue_seconds_count") == 1
    assert value(found, "gateway_queue_seconds_bucket", le="0.3") == 1


def test_a_refusal_has_its_reason() -> None:
    one = made()
    one.observe(record(outcome="rejected", status=503, reason=Overloaded.code), 100.1)
    one.observe(record(outcome="rejected", status=500, reason="made up"), 100.1)
    found = page(one)
    assert value(found, "gateway_rejected_total", reason="overloaded") == 1
    assert value(found, "gateway_rejected_total", reason="other") == 1
    assert value(found, "gateway_rejected_total", reason="not_ready") == 0


def test_probes_are_only_counted() -> None:
    one = made()
    one.observe(record(route="/metrics", probe=True, key=None), 100.1)
    counted = {name for (name, _), n in page(one).items() if n and name.startswith("gateway_re")}
    assert counted == {
        "gateway_requests_total",
        "gateway_requests_in_flight",
        "gateway_requests_queued",
    }


def test_gauges_show_what_goes_on_when_asked() -> None:
    found = page(made())
    assert value(found, "gateway_requests_in_flight") == 3
    assert value(found, "gateway_requests_queued") == 2
    assert value(found, "gateway_slots") == 512
    assert value(found, "gateway_upstream_ready", upstream="0") == 1
    assert value(found, "gateway_upstream_ready", upstream="1") == 0
    assert value(found, "gateway_upstream_requests_in_flight", upstream="0") == 3


def test_failures_of_the_ledger_are_counted_once() -> None:
    seen = iter((0, 2, 2, 5))
    one = Metrics(ROUTES, lambda: Readings(0, 0, 1, (), 7, next(seen)))
    counts = [value(page(one), "gateway_ledger_failures_total") for _ in range(4)]
    assert counts == [0, 2, 2, 5]


def test_ejections_are_counted_once() -> None:
    seen = iter((0, 2, 2, 5))

    def readings() -> Readings:
        ejections = {(1, "gone"): next(seen)}
        return Readings(0, 0, 1, (UpstreamReading(1, True, 0, True),), ejections=ejections)

    one = Metrics(ROUTES, readings)
    pages = [page(one) for _ in range(4)]
    name = "gateway_upstream_ejections_total"
    assert [value(each, name, upstream="1", cause="gone") for each in pages] == [0, 2, 2, 5]
    assert value(pages[0], "gateway_upstream_ejected", upstream="1") == 1


def test_series_are_there_before_their_first_request() -> None:
    found = page(made())
    for outcome, status in series.USUAL.items():
        labels = {"method": "POST", "outcome": outcome, "route": CHAT, "status": str(status)}
        assert value(found, "gateway_requests_total", **labels) == 0


def test_nothing_that_a_client_writes_becomes_a_label() -> None:
    """B61."""
    one = made()
    before = len(page(one))
    letters = random.Random(61)  # noqa: S311 - a test's own dice
    for _ in range(7000):
        text = "".join(letters.choices('aA1/"\n\\é', k=12))
        one.observe(Record("id", text, status=404, outcome="rejected", reason=text), 1.0)
        one.observe(Record("id", "POST", route=text, status=404, outcome="rejected"), 1.0)
    after = page(one)
    assert len(after) - before == 2
    rejected = {"route": "unmatched", "outcome": "rejected", "status": "404"}
    assert value(after, "gateway_requests_total", method="other", **rejected) == 7000
    assert value(after, "gateway_requests_total", method="POST", **rejected) == 7000


def test_even_keys_and_models_have_a_bound() -> None:
    one = made()
    for number in range(2 * series.MOST):
        one.observe(record(key=f"k{number}", prompt_tokens=1), 101.0)
    found = page(one)
    tokens = {labels: n for (name, labels), n in found.items() if "prompt_tokens" in name}
    assert len(tokens) == series.MOST + 1
    outcomes = sum(n for (name, _), n in found.items() if name == "gateway_key_requests_total")
    assert outcomes == 2 * series.MOST
    assert sum(tokens.values()) == 2 * series.MOST
    assert tokens[frozenset({("key", "other"), ("model", "other")})] == series.MOST


def test_names_of_keys_and_models_are_written_so_that_they_can_be_read() -> None:
    one = made()
    key, model = 'a "quoted" \\ key\nand a line', "org/модель"
    one.observe(record(key=key, model=model, prompt_tokens=4), 101.0)
    assert value(page(one), "gateway_prompt_tokens_total", key=key, model=model) == 4


@pytest.mark.parametrize("tokens", [-1, 10**400])
def test_an_impossible_count_of_an_engine_breaks_nothing(tokens: int) -> None:
    one = made()
    one.observe(record(prompt_tokens=tokens, completion_tokens=5), 101.0)
    found = page(one)
    assert value(found, "gateway_prompt_tokens_total", key="team", model="m") in {None, 0}
    assert value(found, "gateway_completion_tokens_total", key="team", model="m") == 5


ENDED = st.tuples(st.sampled_from("kl"), st.sampled_from("mn"), st.integers(0, 10**6))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(ENDED, max_size=20), max_size=4))
def test_sums_are_exact_whenever_pages_are_made(batches: list[list[tuple[str, str, int]]]) -> None:
    one = made()
    for batch in batches:
        for key, model, tokens in batch:
            one.observe(record(key=key, model=model, prompt_tokens=tokens), 101.0)
        found = page(one)
    everything = [each for batch in batches for each in batch]
    for key, model in {(key, model) for key, model, _ in everything}:
        wanted = sum(n for k, m, n in everything if (k, m) == (key, model))
        total = value(found, "gateway_prompt_tokens_total", key=key, model=model)
        assert (total or 0) == wanted


def test_the_page_in_steps_is_the_page_in_one() -> None:
    one = made()
    for number in range(300):
        one.observe(record(key=f"k{number}", prompt_tokens=1), 101.0)
    text = asyncio.run(one.page())
    ours = re.compile(rb"^(?:# (?:HELP|TYPE) )?gateway_(?!process_).*$", re.MULTILINE)
    assert ours.findall(text) == ours.findall(generate_latest(one._registry))


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (edges.FIRST_TOKEN, VLLM_FIRST_TOKEN),
        (edges.PER_TOKEN, VLLM_PER_TOKEN),
        (edges.DURATION, VLLM_LATENCY),
        (edges.QUEUE, VLLM_LATENCY),
    ],
)
def test_edges_contain_those_of_vllm(own: tuple[float, ...], theirs: str) -> None:
    assert set(own) >= set(map(float, theirs.split()))
    assert list(own) == sorted(set(own))


def test_edges_end_past_the_longest_waits() -> None:
    """B63."""
    longest = {name: _longest(name) for name in ("queue_timeout_s", "hold_s", "idle_timeout_s")}
    before = longest["queue_timeout_s"] + longest["hold_s"]
    assert edges.QUEUE[-1] >= before
    assert edges.FIRST_TOKEN[-1] >= before + _longest("first_byte_timeout_s")
    assert edges.PER_TOKEN[-1] >= longest["idle_timeout_s"]
    nginx = (ROOT / "nginx/templates/server/proxy.conf.template").read_text()
    found = re.search(r"proxy_read_timeout (\d+)s;", nginx)
    assert found
    assert edges.DURATION[-1] >= float(found[1])


def _longest(name: str) -> float:
    bounds = [getattr(each, "le", None) for each in Settings.model_fields[name].metadata]
    return float(next(bound for bound in bounds if bound is not None))


def test_every_metric_is_documented_and_no_other() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `(gateway_\w+)` \| (\w+) \| (.*?) ?\|", text, re.MULTILINE)
    documented = {name: (kind, sorted(re.findall(r"\w+", labels))) for name, kind, labels in rows}
    families = vars(made()._families)
    actual = {}
    for family in families.values():
        if hasattr(family, "describe"):
            name = family._name + ("_total" if family._type == "counter" else "")
            actual[name] = (family._type, sorted(family._labelnames))
    assert documented == actual


def test_a_folder_that_is_named_too_late_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each worker's page would show that worker alone."""
    monkeypatch.setenv(metrics.SHARED_BY, "/nowhere")
    with pytest.raises(RuntimeError, match="PROMETHEUS_MULTIPROC_DIR"):
        made()


WORKER = """
import asyncio, sys
from gateway.log import Record
from gateway.metrics import Counted, Metrics, Readings, UpstreamReading
ready = UpstreamReading(0, len(sys.argv) < 3, 1)
one = Metrics([Counted("/v1/models", ("GET",))], lambda: Readings(2, 1, 64, (ready,)))
for number in range(int(sys.argv[1])):
    one.observe(Record("id", "GET", "/v1/models", "team", status=200, prompt_tokens=2), 1.5)
async def main():
    running = asyncio.ensure_future(one.run())
    while not (page := await one.page()).count(b"\\n") or sys.stdin.readline():
        print(page.decode(), "# EOF page", sep="", flush=True)
    running.cancel()
asyncio.run(main())
"""


class Worker:
    """A process with metrics of its own in a shared folder. It prints a page a line of input."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *arguments],
            env={**base_environment(), metrics.SHARED_BY: str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def page(self) -> Page:
        assert self.process.stdin
        assert self.process.stdout
        # The first answer is a page made before the question: ask twice.
        for _ in range(2):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            lines = list(iter(self.process.stdout.readline, "# EOF page\n"))
        return parsed("".join(lines))

    def kill(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[tuple[Worker, Worker]]:
    with ExitStack() as stack:
        pair = Worker(tmp_path, "3"), Worker(tmp_path, "4", "not ready")
        for each in pair:
            stack.callback(each.kill)
        yield pair


def test_any_workers_page_has_the_totals_of_all(
    workers: tuple[Worker, Worker], tmp_path: Path
) -> None:
    first, second = workers
    second.page()
    found = first.page()
    served = {"method": "GET", "outcome": "ok", "route": "/v1/models", "status": "200"}
    seconds = "gateway_request_duration_seconds"
    for name, labels, wanted in (
        ("gateway_requests_total", served, 7),
        ("gateway_prompt_tokens_total", {"key": "team", "model": "other"}, 14),
        (f"{seconds}_count", {"route": "/v1/models", "outcome": "ok"}, 7),
        (f"{seconds}_bucket", {"route": "/v1/models", "outcome": "ok", "le": "1.5"}, 7),
        ("gateway_requests_in_flight", {}, 4),
        ("gateway_requests_queued", {}, 2),
        ("gateway_slots", {}, 64),
        ("gateway_upstream_ready", {"upstream": "0"}, 0),
        ("gateway_upstream_requests_in_flight", {"upstream": "0"}, 2),
    ):
        assert value(found, name, **labels) == wanted, name
    assert found == second.page()
    second.kill()
    mark_process_dead(second.process.pid, str(tmp_path))  # type: ignore[no-untyped-call]
    found = first.page()
    assert value(found, "gateway_requests_total", **served) == 7
    assert value(found, "gateway_requests_in_flight") == 2
    assert value(found, "gateway_upstream_ready", upstream="0") == 1
