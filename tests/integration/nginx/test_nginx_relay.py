"""What nginx passes on, and when: never twice, never longer than the client stays."""

import time

import pytest
from common.fake_vllm import FakeVLLM
from common.front import Front
from common.rawhttp import Client, build, once
from common.script import Fin, Pause, Repeat, Reset, Send, answer, chunk, delta_event, sse_head

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": []}


@pytest.mark.parametrize("end", [Fin(), Reset()])
def test_a_post_without_an_answer_is_sent_once(
    fake: FakeVLLM, front: Front, end: Fin | Reset
) -> None:
    fake.enqueue(end)
    reply = once(front.port, "POST", CHAT, body=BODY)
    assert reply.status == 502
    assert reply.json()["error"]["code"] == "gateway_unreachable"
    time.sleep(0.3)
    assert [one.body for one in fake.requests] == [b'{"model": "m", "messages": []}']


def test_a_post_on_a_dying_reused_connection_is_sent_once(fake: FakeVLLM, front: Front) -> None:
    """nginx cannot tell such a POST from one that was worked on, so it does not send it again.

    What keeps this from happening is the order of the idle times (test_limits.py).
    """
    fake.behaviour.drop_reused = True
    statuses = [once(front.port, "POST", CHAT, body=BODY).status for _ in range(6)]
    assert set(statuses) == {200, 502}
    assert len(fake.requests) == 6


def test_idle_connections_that_the_gateway_closes_are_not_used(
    fake: FakeVLLM, front: Front
) -> None:
    fake.behaviour.idle_s = 0.2
    for pause in (0.25, 0.3, 0.4, 0.25, 0.3):
        assert once(front.port, "POST", CHAT, body=BODY).status == 200
        time.sleep(pause)


def test_connections_to_the_gateway_are_reused(fake: FakeVLLM, front: Front) -> None:
    for _ in range(20):
        assert once(front.port, "POST", CHAT, body=BODY).status == 200
    assert len({one.connection for one in fake.requests}) <= 2  # one a worker
    assert all(one.header("connection") is None for one in fake.requests)


def test_a_client_that_leaves_before_the_first_byte_is_noticed(
    fake: FakeVLLM, front: Front
) -> None:
    fake.enqueue(Pause(30))
    with Client(front.port) as client:
        client.send(build("POST", CHAT, {}, BODY))
        fake.wait_until(lambda: fake.requests)
        left = time.monotonic()
    fake.wait_until(lambda: fake.requests[0].closed_at, timeout_s=2)
    assert (fake.requests[0].closed_at or 0) - left < 1


def test_a_client_that_leaves_mid_stream_is_noticed(fake: FakeVLLM, front: Front) -> None:
    fake.enqueue(Send(sse_head()), Repeat(chunk(delta_event()), 300, 0.1))
    with Client(front.port) as client:
        reply = client.request("POST", CHAT, body={**BODY, "stream": True}, stream=True)
        next(client.pieces(reply))
        left = time.monotonic()
        client.reset()
    fake.wait_until(lambda: fake.requests[0].closed_at, timeout_s=2)
    assert (fake.requests[0].closed_at or 0) - left < 1
    assert front.wait_for_log(1)[-1]["path"] == CHAT


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_the_gateways_own_errors_pass_untouched(fake: FakeVLLM, front: Front, kind: str) -> None:
    body = b'{"error": {"message": "ours"}}'
    for status in (400, 401, 404, 405, 408, 413, 414, 422, 429, 431, 500, 502, 503, 504):
        fake.enqueue(*answer(body, status, kind, [("retry-after", "7")]))
        reply = once(front.port, "POST", CHAT, body=BODY)
        assert (reply.status, reply.body) == (status, body)
        assert (reply.header("content-type"), reply.header("retry-after")) == (kind, "7")


def test_body_and_key_arrive_as_sent(fake: FakeVLLM, front: Front) -> None:
    body = b'{"b": 1.0 ,"a":"\\u00e9", "a": 2}'
    once(front.port, "POST", CHAT, {"Authorization": "Bearer sk-x"}, body)
    assert fake.requests[0].body == body
    assert fake.requests[0].header("authorization") == b"Bearer sk-x"


def test_a_body_of_more_than_a_megabyte_passes(fake: FakeVLLM, front: Front) -> None:
    body = b'"' + b"i" * (1100 * 1024) + b'"'
    assert once(front.port, "POST", CHAT, body=body).status == 200
    assert fake.requests[0].body == body


def test_forwarded_headers_are_what_nginx_saw(fake: FakeVLLM, front: Front) -> None:
    lies = {
        "X-Forwarded-For": "6.6.6.6",
        "X-Real-IP": "6.6.6.6",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil",
        "X-Forwarded-Port": "1",
        "Forwarded": "for=6.6.6.6",
        "Upgrade": "h2c",
        "Connection": "Upgrade, HTTP2-Settings",
    }
    assert once(front.port, "POST", CHAT, lies, BODY).status == 200
    got = fake.requests[0]
    assert got.header("x-forwarded-for") == b"127.0.0.1"
    assert got.header("x-real-ip") == b"127.0.0.1"
    assert got.header("x-forwarded-proto") == b"http"
    for name in ("x-forwarded-host", "x-forwarded-port", "forwarded", "upgrade", "connection"):
        assert got.header(name) is None, name
    assert front.wait_for_log(1)[-1]["client"] == "127.0.0.1"


@pytest.mark.parametrize("mine", ["abc-1", "A.b_c", "x" * 64])
def test_a_plain_request_id_is_kept(fake: FakeVLLM, front: Front, mine: str) -> None:
    fake.enqueue(*answer(headers=[("x-request-id", "the-gateways")]))
    reply = once(front.port, "POST", CHAT, {"X-Request-Id": mine}, BODY)
    assert reply.header("x-request-id") == mine
    assert fake.requests[0].header("x-request-id") == mine.encode()
    assert front.wait_for_log(1)[-1]["request_id"] == mine


@pytest.mark.parametrize("bad", ["", "x" * 65, "a b", 'a"b', "a,b", "a\\nb", "é"])
def test_another_request_id_is_replaced(fake: FakeVLLM, front: Front, bad: str) -> None:
    reply = once(front.port, "POST", CHAT, {"X-Request-Id": bad}, BODY)
    mine = reply.header("x-request-id") or ""
    assert len(mine) == 32
    assert fake.requests[0].header("x-request-id") == mine.encode()
