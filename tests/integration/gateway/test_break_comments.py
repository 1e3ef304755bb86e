"""Comments that would fall into an event."""

from __future__ import annotations

from collections.abc import Callable

from common.fake_vllm import FakeVLLM
from common.script import DONE, Pause, Send, chunk, delta_event, finish_event, sse_head
from common.servers import GatewayProcess

Start = Callable[..., GatewayProcess]
UNASKED = b'{"stream":true}'


def test_a_heartbeat_waits_for_held_line_ends(start: Start, fake: FakeVLLM) -> None:
    """Two CR may be one event's end or not yet; what is held must not get a comment before it."""
    gateway = start(fake.url, heartbeat_s=0.2)
    gateway.wait_ready()
    event = delta_event("a").replace(b"\n", b"\r")
    rest = finish_event() + DONE
    parts = [event[:-8], event[-8:], rest]
    fake.enqueue(
        Send(sse_head()),
        *(step for part in parts for step in (Send(chunk(part)), Pause(0.6))),
        Send(chunk(b"")),
    )
    reply = gateway.chat(UNASKED)
    assert event + rest in reply.body
