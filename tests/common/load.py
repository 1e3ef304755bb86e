"""Streams for tests under load, and what must be true once it is over."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from common.fake_vllm import FakeVLLM
from common.rawhttp import build, once
from common.script import DONE, Repeat, Script, Send, chunk, delta_event, finish_event, sse_head
from common.servers import AUTH, CHAT, GatewayProcess

REQUEST = build("POST", CHAT, {**AUTH, "connection": "close"}, {"stream": True})
EVENT = delta_event("x")
END = finish_event() + DONE
ENDLESS: Script = (Send(sse_head() + chunk(EVENT)), Repeat(chunk(EVENT), 100_000, 0.1))


def lasting(seconds: float) -> tuple[Script, bytes]:
    """A stream of that length, ten events a second, and its body."""
    times = round(seconds * 10)
    script = (Send(sse_head()), Repeat(chunk(EVENT), times, 0.1), Send(chunk(END) + chunk(b"")))
    return script, EVENT * times + END


def idle(gateway: GatewayProcess) -> bool:
    counts = gateway.status()["gateway"]
    return bool(counts["in_flight"] == counts["queued"] == 0)


def let_go(engine: FakeVLLM) -> bool:
    """True when the engine works on nothing any more."""
    return all(one.closed_at or one.answered_at for one in engine.requests)


def counted(gateway: GatewayProcess, name: str, **labels: str) -> float:
    """The sum over all series of that name with at least these labels."""
    page = once(gateway.port, "GET", "/metrics").body.decode()
    samples = [one for each in text_string_to_metric_families(page) for one in each.samples]
    wanted = labels.items()
    return sum(one.value for one in samples if one.name == name and wanted <= one.labels.items())
