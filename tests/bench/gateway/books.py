"""Do the books of our gateway say what was sent to it? Findings are lines; none is good."""

from __future__ import annotations

import http.client
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.gateway.contenders import KEY_NAME, Contender, stop, usage_db
from bench.gateway.measure import Sent

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Book:
    """What one of them says of the key. `requests` and, where it tells, tokens by outcome."""

    requests: Mapping[str, int]
    prompt_tokens: int
    completion_tokens: int


def judge(sent: Sent, gateway: Contender, folder: Path) -> list[str]:
    """Compares; stops the gateway in between, so that its last second is on disk."""
    try:
        metrics = read_metrics(_page(gateway.target.port))
    except (OSError, http.client.HTTPException) as error:
        return [f"metrics: no page ({error})"]
    code = stop(gateway.process)
    findings = [f"the gateway ended with exit code {code}"] if code else []
    try:
        rows = read_ledger(usage_db(folder))
    except sqlite3.Error as error:
        return [*findings, f"ledger: not readable ({error})"]
    return findings + compare(sent, metrics, rows)


def compare(sent: Sent, metrics: Book, ledger: Mapping[str, Book]) -> list[str]:
    """Requests by outcome, and the tokens of those that ended well, are exactly what was sent.

    Of an answer that its client left nobody knows the engine's count: there metrics and ledger
    only have to agree.
    """
    wanted = {"ok": sent.requests, "client_left": sent.left}
    wanted = {outcome: number for outcome, number in wanted.items() if number}
    in_ledger = {outcome: sum(book.requests.values()) for outcome, book in ledger.items()}
    well = ledger.get("ok", Book({}, 0, 0))
    pairs = (
        ("ledger: requests by outcome", in_ledger, wanted),
        ("ledger: prompt tokens", well.prompt_tokens, sent.prompt_tokens),
        ("ledger: completion tokens", well.completion_tokens, sent.completion_tokens),
        ("metrics: requests by outcome", dict(metrics.requests), wanted),
        (
            "metrics: prompt tokens",
            metrics.prompt_tokens,
            sum(book.prompt_tokens for book in ledger.values()),
        ),
        (
            "metrics: completion tokens",
            metrics.completion_tokens,
            sum(book.completion_tokens for book in ledger.values()),
        ),
    )
    return [
        f"{what}: found {found}, sent {right}" for what, found, right in pairs if found != right
    ]


def read_metrics(page: str) -> Book:
    """From the text for Prometheus, what it counts for the benchmark's key."""
    requests: dict[str, int] = {}
    tokens = {"gateway_prompt_tokens_total": 0, "gateway_completion_tokens_total": 0}
    for line in page.splitlines():
        sample = _SAMPLE.match(line)
        labels = dict(_LABEL.findall(sample[2])) if sample else {}
        if sample is None or labels.get("key") != KEY_NAME or not float(sample[3]):
            continue
        if sample[1] == "gateway_key_requests_total":
            requests[labels["outcome"]] = int(float(sample[3]))
        elif sample[1] in tokens:
            tokens[sample[1]] += int(float(sample[3]))
    return Book(requests, *tokens.values())


def read_ledger(file: Path) -> dict[str, Book]:
    """The key's sums by outcome. sqlite3.Error when there is no ledger."""
    query = (
        "SELECT outcome, sum(requests), sum(prompt_tokens), sum(completion_tokens)"
        " FROM usage WHERE key = ? GROUP BY outcome"
    )
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        rows = connection.execute(query, (KEY_NAME,)).fetchall()
    finally:
        connection.close()
    return {outcome: Book({outcome: n}, prompt, done) for outcome, n, prompt, done in rows}


def _page(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise OSError(f"status {answer.status}")
        return text
    finally:
        connection.close()
