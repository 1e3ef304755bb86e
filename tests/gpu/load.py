"""Streams of completions from a few threads, with the standard library; counts, not figures to
quote: one Python process is no load generator."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

TOKENS = 64


@dataclass(frozen=True)
class Result:
    """`tokens`: that the engine said it generated; `failed`: requests without a whole answer."""

    streams: int
    tokens: int
    failed: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def run(port: int, model: str, streams: int) -> Result:
    """So many requests at once, each of 64 tokens."""
    began = time.monotonic()
    with ThreadPoolExecutor(streams) as pool:
        counts = list(pool.map(lambda at: _one(port, model, at), range(streams)))
    tokens = sum(count or 0 for count in counts)
    return Result(streams, tokens, counts.count(None), time.monotonic() - began)


def _one(port: int, model: str, at: int) -> int | None:
    body = {
        "model": model, "prompt": f"{at} is a number. " * 8, "max_tokens": TOKENS,
        "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        told = json.loads(answer.read())
        return int(told["usage"]["completion_tokens"]) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return None
    finally:
        connection.close()
