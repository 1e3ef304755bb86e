"""The few numbers of vLLM's /metrics that the status shows."""

import http.client
import re
from collections.abc import Callable
from dataclasses import dataclass

# One line of the Prometheus text form: name, labels, value. Engines (data parallel) differ in
# labels only, so their values are added (the KV cache's use: averaged).
LINE = re.compile(r"^(vllm:\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
LARGEST_ANSWER = 8 * 2**20  # vLLM's own is about 0.1 MiB


@dataclass(frozen=True)
class Numbers:
    """None: unknown. `kv_cache_usage` is a share from 0 to 1, the totals count tokens."""

    running: int | None = None
    waiting: int | None = None
    kv_cache_usage: float | None = None
    prompt_tokens_total: int | None = None
    generation_tokens_total: int | None = None


def parse(text: str) -> Numbers:
    """Numbers in the text of /metrics."""
    values: dict[str, list[float]] = {}
    for name, value in LINE.findall(text):
        try:
            values.setdefault(name, []).append(float(value))
        except ValueError:
            continue
    usage = values.get("vllm:kv_cache_usage_perc")
    return Numbers(
        running=_sum(values, "vllm:num_requests_running"),
        waiting=_sum(values, "vllm:num_requests_waiting"),
        kv_cache_usage=sum(usage) / len(usage) if usage else None,
        prompt_tokens_total=_sum(values, "vllm:prompt_tokens_total"),
        generation_tokens_total=_sum(values, "vllm:generation_tokens_total"),
    )


def _sum(values: dict[str, list[float]], name: str) -> int | None:
    return round(sum(values[name])) if name in values else None


def get(host: str, port: int, path: str, timeout_s: float) -> tuple[int, str] | None:
    """Status and body of a GET, or None where nothing answers in time."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(LARGEST_ANSWER).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def now(host: str, port: int) -> Numbers:
    """What vLLM says at this moment; unknown numbers where it is silent."""
    answer = get(host, port, "/metrics", timeout_s=2.0)
    return parse(answer[1]) if answer and answer[0] == 200 else Numbers()


class Scraper:
    """Asks the engine for its numbers, at most once a second however often it is asked."""

    def __init__(self, host: str, port: int, clock: Callable[[], float]) -> None:
        self._host, self._port, self._clock = host, port, clock
        self._numbers, self._until = Numbers(), float("-inf")

    def numbers(self) -> Numbers:
        """The newest numbers, at most one second old; unknown ones where the engine is silent."""
        if self._clock() >= self._until:
            self._numbers = now(self._host, self._port)
            self._until = self._clock() + 1.0
        return self._numbers


def reachable(host: str) -> str:
    """The address to reach a server that listens on `host` from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
