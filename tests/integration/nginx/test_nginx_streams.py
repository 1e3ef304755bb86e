"""A stream passes through nginx as it was written: at once, byte for byte, cut where it was cut."""

import hashlib
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from common.fake_vllm import FakeVLLM
from common.front import Front
from common.net import free_port
from common.rawhttp import Client, Reply
from common.script import Fin, Pause, Reset, Send, Step, chunk, delta_event, sse_head

CHAT = {"model": "m", "stream": True, "messages": []}
GAP_S = 0.3
TINY = b'data: {"t":"0123456789abcde"}\n\n'


def tiny_events(count: int = 10) -> list[Step]:
    steps: list[Step] = [Send(sse_head())]
    for _ in range(count):
        steps += [Send(chunk(TINY)), Pause(GAP_S)]
    return [*steps, Send(chunk(b""))]


def gaps(reply: Reply) -> list[float]:
    return [later - earlier for (earlier, _), (later, _) in pairwise(reply.arrivals)]


def assert_paced(reply: Reply) -> None:
    """Held back, events arrive together; on a busy machine one may be late and the next early."""
    found = gaps(reply)
    assert len(found) == 9, found
    assert min(found) > 0.1, found
    assert 0.2 < median(found) < 0.4, found


def ask(port: int, headers: dict[str, str] | None = None) -> Reply:
    with Client(port) as client:
        return client.request("POST", "/v1/chat/completions", headers, CHAT)


@pytest.mark.parametrize("headers", [{}, {"Accept-Encoding": "gzip, br"}])
def test_events_arrive_one_by_one(fake: FakeVLLM, front: Front, headers: dict[str, str]) -> None:
    fake.enqueue(*tiny_events())
    reply = ask(front.port, headers)
    assert reply.whole
    assert reply.body == TINY * 10
    assert reply.header("content-encoding") is None
    assert_paced(reply)


OUTER = """
pid outer.pid; error_log stderr; events {{}}
http {{
  access_log off; client_body_temp_path outer_body; proxy_temp_path outer_proxy;
  fastcgi_temp_path outer_fastcgi; uwsgi_temp_path outer_uwsgi; scgi_temp_path outer_scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{inner}; }} }}
}}
"""


def test_an_outer_nginx_with_its_defaults_does_not_buffer_either(
    fake: FakeVLLM, front: Front, tmp_path: Path
) -> None:
    outer = Front(tmp_path / "outer", "127.0.0.1:1")
    outer.port = free_port()
    (outer.out / "nginx.conf").write_text(OUTER.format(port=outer.port, inner=front.port))
    fake.enqueue(*tiny_events())
    with outer:
        reply = ask(outer.port)
    assert reply.body == TINY * 10
    assert_paced(reply)


def test_the_outer_proxy_is_told_by_header(fake: FakeVLLM, front: Front) -> None:
    fake.enqueue(Send(sse_head(("x-accel-buffering", "no"))), Send(chunk(b"")))
    assert ask(front.port).header("x-accel-buffering") == "no"
    with Client(front.port) as client:
        assert client.request("GET", "/v1/models").header("x-accel-buffering") is None


def test_the_gateway_cannot_switch_buffering_on_or_redirect(fake: FakeVLLM, front: Front) -> None:
    head = sse_head(("x-accel-buffering", "yes"), ("x-accel-redirect", "/nginx-health"))
    events: list[Step] = [Send(chunk(TINY)), Pause(GAP_S), Send(chunk(TINY)), Send(chunk(b""))]
    fake.enqueue(Send(head), *events)
    reply = ask(front.port)
    assert reply.body == TINY * 2
    assert gaps(reply)[0] > 0.2


def test_bytes_cut_inside_a_character_stay_the_same(fake: FakeVLLM, front: Front) -> None:
    event = delta_event("北京🦊é")
    pieces = [Send(chunk(event[at : at + 1])) for at in range(len(event))]
    fake.enqueue(Send(sse_head()), *pieces, Send(chunk(b"")))
    got = ask(front.port).body
    assert hashlib.sha256(got).digest() == hashlib.sha256(event).digest()


@pytest.mark.parametrize("end", [Fin(), Reset()])
def test_a_cut_stream_is_seen_as_cut(fake: FakeVLLM, front: Front, end: Fin | Reset) -> None:
    fake.enqueue(Send(sse_head()), Send(chunk(TINY)), Pause(0.1), end)
    reply = ask(front.port)
    assert reply.status == 200
    assert reply.body == TINY
    assert not reply.whole
    assert len(fake.requests) == 1
