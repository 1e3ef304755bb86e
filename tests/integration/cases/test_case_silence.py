"""Silence has one budget, the gateway reports its end, and events keep their pace.

B16, B22.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from common.events import the_error
from common.front import Front
from common.net import free_port
from common.rawhttp import Client, Reply
from common.row import IDLE_S, STREAM, Door, Row, running
from common.script import (
    DONE,
    JSON,
    Pause,
    Script,
    Send,
    Step,
    answer,
    chunk,
    delta_event,
    finish_event,
    head,
    sse_head,
)
from common.servers import AUTH, CHAT

END = chunk(finish_event() + DONE) + chunk(b"")
EVENT = chunk(delta_event())
WITHIN, PAST = IDLE_S * 0.6, 9.0


def silences(pause_s: float) -> dict[str, tuple[Script, bytes]]:
    """Where an engine may fall silent, and with which kind of request."""
    plain = head(200, [("content-type", JSON), ("content-length", "2")])
    return {
        "before-the-head": ((Pause(pause_s), Send(sse_head() + EVENT + END)), STREAM),
        "before-the-head-plain": ((Pause(pause_s), *answer({"a": 1})), b"{}"),
        "after-the-head": ((Send(sse_head()), Pause(pause_s), Send(EVENT + END)), STREAM),
        "after-the-head-plain": ((Send(plain), Pause(pause_s), Send(b"{}")), b"{}"),
        "after-a-chunk": ((Send(sse_head() + EVENT), Pause(pause_s), Send(END)), STREAM),
        "in-a-line": (
            (Send(sse_head() + b"9\r\ndata"), Pause(pause_s), Send(b": {}\n\r\n" + END)),
            STREAM,
        ),
        "in-the-head": (
            (Send(sse_head()[:30]), Pause(pause_s), Send(sse_head()[30:] + EVENT + END)),
            STREAM,
        ),
        "before-the-terminator": (
            (Send(sse_head() + EVENT + END[:-5]), Pause(pause_s), Send(END[-5:])),
            STREAM,
        ),
    }


def ask_all(door: Door, pause_s: float) -> dict[str, Reply]:
    """One request for each place, all at once."""
    places = silences(pause_s)
    door.engine.by_id = {name.encode(): script for name, (script, _) in places.items()}

    def ask(name: str) -> Reply:
        return door.ask(body=places[name][1], **{"x-request-id": name})

    with ThreadPoolExecutor(len(places)) as pool:
        return dict(zip(places, pool.map(ask, places), strict=True))


def test_silence_within_the_budget_costs_nothing(door: Door) -> None:
    """B22: a long prefill, a preempted sequence: the answer arrives whole."""
    for place, reply in ask_all(door, WITHIN).items():
        assert (reply.status, reply.whole) == (200, True), place
        assert b'"error"' not in reply.body, place
        assert door.line(reply)["outcome"] == "ok", place


def test_silence_past_the_budget_is_told_by_the_gateway(door: Door) -> None:
    """B22: a 504 in JSON, after the head an error event; not from nginx; the engine is let go."""
    for place, reply in ask_all(door, PAST).items():
        if place == "before-the-terminator":  # nothing is missing but framing
            assert b'"error"' not in reply.body
        elif place in {"after-a-chunk", "in-a-line", "after-the-head"}:
            assert the_error(reply.body)["code"] == "upstream_timeout", place
        else:
            error = reply.json()["error"]
            assert (reply.status, error["code"]) == (504, "upstream_timeout"), place
    door.engine.wait_until(lambda: all(one.closed_at for one in door.engine.requests), 1)
    assert len(door.engine.requests) == len(silences(0))


GAP_S = 0.3
TINY = b'data: {"t":"0123456789abcde"}\n\n'


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Row]:
    """A row that a busy machine cannot make time out."""
    with running(tmp_path, first_byte_timeout_s=20, idle_timeout_s=20) as row:
        yield row


@pytest.fixture
def outer(patient: Row, tmp_path: Path) -> Iterator[int]:
    """A second nginx, as it comes, in front of ours; its port."""
    stock = Front(tmp_path / "outer", "127.0.0.1:1")
    stock.port = free_port()
    (stock.out / "nginx.conf").write_text(OUTER % (stock.port, patient.front.port))
    with stock:
        yield stock.port


OUTER = """
pid outer.pid; error_log stderr; events {}
http {
  access_log off; gzip on; gzip_types *; client_body_temp_path b; proxy_temp_path p;
  fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server { listen 127.0.0.1:%d; location / { proxy_pass http://127.0.0.1:%d; } }
}
"""


def ask(port: int, headers: dict[str, str]) -> Reply:
    with Client(port) as client:
        return client.request("POST", CHAT, {**AUTH, **headers}, STREAM)


def test_ten_tiny_events_keep_their_pace(patient: Row, outer: int) -> None:
    """B16: through each door, compressed or not, and through a stock nginx in front."""
    row = patient
    script: list[Step] = [Send(sse_head())]
    for _ in range(10):
        script += [Send(chunk(TINY)), Pause(GAP_S)]
    row.engine.behaviour.script = (*script, Send(END))
    ports = {"gateway": row.gateway.port, "nginx": row.front.port, "outer": outer}
    asked = [
        (name, headers)
        for name in ports
        for headers in ({}, {"accept-encoding": "gzip, br"})
        if name != "outer" or not headers  # a proxy of others may compress what is its own
    ]
    try:
        with ThreadPoolExecutor(len(asked)) as pool:
            replies = list(pool.map(lambda one: ask(ports[one[0]], one[1]), asked))
    finally:
        row.engine.behaviour.script = None
    for (name, headers), reply in zip(asked, replies, strict=True):
        assert reply.body == TINY * 10 + finish_event() + DONE, name
        assert reply.header("content-encoding") is None, (name, headers)
        assert reply.header("cache-control") == "no-cache, no-transform", name
        assert name == "outer" or reply.header("x-accel-buffering") == "no", name
        gaps = [later - at for (at, _), (later, _) in pairwise(reply.arrivals)]
        assert min(gaps[:9]) > 0.1, (name, gaps)
        assert 0.2 < median(gaps[:9]) < 0.4, (name, gaps)
