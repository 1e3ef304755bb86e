"""Metrics and ledger are read as they are written, and every difference is a line."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from bench.gateway.books import Book, compare, read_ledger, read_metrics
from bench.gateway.measure import Sent

from gateway.ledger.store import Batch, Store
from gateway.ledger.target import of_file

PAGE = """# HELP gateway_key_requests_total Requests of each key that have ended.
# TYPE gateway_key_requests_total counter
gateway_key_requests_total{key="bench",outcome="ok"} 12.0
gateway_key_requests_total{key="bench",outcome="client_left"} 2.0
gateway_key_requests_total{key="bench",outcome="truncated"} 0.0
gateway_key_requests_total{key="somebody",outcome="ok"} 7.0
gateway_prompt_tokens_total{key="bench",model="m"} 98.0
gateway_prompt_tokens_total{key="somebody",model="m"} 1.0
gateway_completion_tokens_total{key="bench",model="m"} 1.05e+03
gateway_requests_in_flight 3.0
"""
SENT = Sent(streams=2, unary=10, left=2, completion_tokens=1020)
METRICS = Book({"ok": 12, "client_left": 2}, 98, 1050)
LEDGER = {"ok": Book({"ok": 12}, 84, 1020), "client_left": Book({"client_left": 2}, 14, 30)}


def test_metrics_of_our_key() -> None:
    assert read_metrics(PAGE) == METRICS


def test_ledger_of_our_key(tmp_path: Path) -> None:
    target = of_file(tmp_path / "usage.sqlite3")
    store = Store(target)
    rows = {
        (0, "bench", "m", "/v1/chat/completions", "ok"): [10, 70, 1000, 0],
        (3600, "bench", "m", "/v1/chat/completions", "ok"): [2, 14, 20, 0],
        (0, "bench", "m", "/v1/chat/completions", "client_left"): [2, 14, 30, 2],
        (0, "somebody", "m", "/v1/chat/completions", "ok"): [7, 7, 7, 0],
    }
    store.write(Batch(1, rows))
    store.close()
    assert read_ledger(tmp_path / "usage.sqlite3") == LEDGER


def test_no_ledger_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error):
        read_ledger(tmp_path / "usage.sqlite3")


def test_equal_books_are_no_finding() -> None:
    assert compare(SENT, METRICS, LEDGER) == []


@pytest.mark.parametrize(
    ("sent", "metrics", "found"),
    [
        (replace(SENT, unary=11), METRICS, "requests by outcome"),
        (replace(SENT, completion_tokens=1021), METRICS, "ledger: completion tokens"),
        (SENT, replace(METRICS, prompt_tokens=97), "metrics: prompt tokens"),
        (replace(SENT, left=0), METRICS, "requests by outcome"),
    ],
)
def test_one_less_is_a_finding(sent: Sent, metrics: Book, found: str) -> None:
    assert any(found in line for line in compare(sent, metrics, LEDGER))
