"""Streams for tests under load, and what must be true once it is over."""

from __future__ import annotations

from common.fake_vllm import FakeVLLM
from common.rawhttp import build
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
