"""Streams of completions with the standard library: enough to keep an engine busy and to count its
tokens; no load generator whose latencies are worth a quote.

Run as a program it is one of the processes of a load: load.py PORT MODEL SALT FIRST STREAMS TOKENS.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

A_PROCESS = 64  # streams; threads of one Python share one core
LIMIT_S = 120


@dataclass(frozen=True)
class Result:
    """`prompt`, `tokens`: read and generated, as the engine counts them; `failed`: requests without
    a whole answer; `seconds`: from the first request to the last answer."""

    streams: int
    prompt: int
    tokens: int
    failed: int
    seconds: float


def run(port: int, model: str, streams: int) -> Result:
    """So many requests at once: 64 tokens each, 256 where there are more than 64 of them."""
    tokens = 64 if streams <= A_PROCESS else 256
    # No prompt is in the prefix cache: each begins with its own number, or the first block of 16
    # tokens would be the same in all, and not be computed again.
    salt = time.monotonic_ns()
    parts = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(port), model, str(salt), str(first),
             str(min(A_PROCESS, streams - first)), str(tokens)],
            stdout=subprocess.PIPE, text=True,
        )
        for first in range(0, streams, A_PROCESS)
    ]  # fmt: skip
    try:
        told = [json.loads(part.communicate(timeout=LIMIT_S + 30)[0]) for part in parts]
    finally:
        for part in parts:
            part.kill()
            part.wait()
    return summed(streams, told)


def summed(streams: int, parts: list[dict[str, Any]]) -> Result:
    """Several processes as one load."""
    return Result(
        streams=streams,
        prompt=sum(part["prompt"] for part in parts),
        tokens=sum(part["tokens"] for part in parts),
        failed=sum(part["failed"] for part in parts),
        seconds=round(max(part["end"] for part in parts) - min(part["begin"] for part in parts), 3),
    )


def part(port: int, model: str, salt: str, range_: range, tokens: int) -> dict[str, Any]:
    """One process' share; `begin` and `end` are Unix times."""
    began = time.time()
    with ThreadPoolExecutor(len(range_)) as pool:
        usages = list(pool.map(lambda at: _one(port, model, f"{at} {salt}", tokens), range_))
    whole = [usage for usage in usages if usage and usage[1] == tokens]
    return {
        "prompt": sum(usage[0] for usage in whole), "tokens": sum(usage[1] for usage in whole),
        "failed": len(usages) - len(whole), "begin": began, "end": time.time(),
    }  # fmt: skip


def _one(port: int, model: str, name: str, tokens: int) -> tuple[int, int] | None:
    """Tokens read and generated, of a stream, as chat clients ask for one."""
    body = {
        "model": model, "prompt": f"{name} is a number. " * 4, "max_tokens": tokens, "stream": True,
        "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        return _usage(connection.getresponse())
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return None
    finally:
        connection.close()


def _usage(answer: http.client.HTTPResponse) -> tuple[int, int] | None:
    usage = None
    for line in answer:
        if line.startswith(b"data: {") and b'"usage":{' in line.replace(b" ", b""):
            usage = json.loads(line[6:])["usage"]
    return (int(usage["prompt_tokens"]), int(usage["completion_tokens"])) if usage else None


if __name__ == "__main__":
    port, model, salt, first, streams, tokens = sys.argv[1:]
    numbers = range(int(first), int(first) + int(streams))
    sys.stdout.write(json.dumps(part(int(port), model, salt, numbers, int(tokens))) + "\n")
