"""The gateway's name does not exist yet, appears, moves and goes away: nginx stays as it is."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from common.dns import TinyDNS
from common.fake_vllm import FakeVLLM
from common.front import Front
from common.rawhttp import Client, Reply, once
from common.script import Repeat, Send, chunk, delta_event, sse_head

FOLLOWED_WITHIN_S = 6.0


@pytest.fixture
def dns() -> Iterator[TinyDNS]:
    with TinyDNS() as dns:
        yield dns


def front_by_name(folder: Path, dns: TinyDNS, port: int) -> Front:
    return Front(folder, f"gateway:{port}", resolver=f"127.0.0.1:{dns.port}")


def wait_for(front: Front, status: int) -> Reply:
    end = time.monotonic() + FOLLOWED_WITHIN_S
    while (reply := once(front.port, "GET", "/v1/models")).status != status:
        assert time.monotonic() < end, f"still {reply.status} after {FOLLOWED_WITHIN_S} s"
        assert reply.json()["error"]["code"] == "gateway_unreachable"
        time.sleep(0.1)
    return reply


def test_nginx_starts_without_a_gateway_and_finds_it_later(
    tmp_path: Path, dns: TinyDNS, fake: FakeVLLM
) -> None:
    with front_by_name(tmp_path, dns, fake.port) as front:
        reply = once(front.port, "POST", "/v1/chat/completions", body={})
        assert reply.status == 502
        assert reply.header("retry-after") == "5"
        dns.records["gateway"] = ["127.0.0.1"]
        wait_for(front, 200)


def test_nginx_starts_without_a_name_server(tmp_path: Path) -> None:
    with Front(tmp_path, "gateway:8081", resolver="127.0.0.1:1") as front:
        assert once(front.port, "GET", "/livez").status == 502


def test_a_new_address_is_followed(tmp_path: Path, dns: TinyDNS, fake: FakeVLLM) -> None:
    dns.records["gateway"] = ["127.0.0.1"]
    with (
        FakeVLLM(port=fake.port, host="127.0.0.2") as moved,
        front_by_name(tmp_path, dns, fake.port) as front,
    ):
        wait_for(front, 200)
        assert not moved.log
        fake.stop_listening(reset=True)
        dns.records["gateway"] = ["127.0.0.2"]
        wait_for(front, 200)
        assert moved.log


def test_another_container_on_the_old_address_gets_nothing(
    tmp_path: Path, dns: TinyDNS, fake: FakeVLLM
) -> None:
    """The old address keeps answering; after the name moved nobody may be sent there."""
    dns.records["gateway"] = ["127.0.0.1"]
    with (
        FakeVLLM(port=fake.port, host="127.0.0.2") as moved,
        front_by_name(tmp_path, dns, fake.port) as front,
    ):
        wait_for(front, 200)
        dns.records["gateway"] = ["127.0.0.2"]
        moved.wait_until(lambda: wait_for(front, 200).status and moved.log, FOLLOWED_WITHIN_S)
        before = len(fake.log)
        for _ in range(10):
            assert once(front.port, "GET", "/v1/models").status == 200
        assert len(fake.log) == before


def test_a_post_is_not_tried_on_the_second_address(
    tmp_path: Path, dns: TinyDNS, fake: FakeVLLM
) -> None:
    dns.records["gateway"] = ["127.0.0.1", "127.0.0.2"]
    with (
        FakeVLLM(port=fake.port, host="127.0.0.2") as second,
        front_by_name(tmp_path, dns, fake.port) as front,
    ):
        wait_for(front, 200)
        fake.behaviour.drop_unread = second.behaviour.drop_unread = True
        before = len(fake.requests) + len(second.requests)
        connections = fake._connections + second._connections
        assert once(front.port, "POST", "/v1/chat/completions", body={}).status == 502
        time.sleep(0.3)
        assert len(fake.requests) + len(second.requests) == before
        assert fake._connections + second._connections <= connections + 1


def test_a_gateway_that_restarts_on_its_address_is_used_at_once(
    fake: FakeVLLM, front: Front
) -> None:
    assert once(front.port, "GET", "/v1/models").status == 200
    fake.stop_listening(reset=True)
    assert once(front.port, "GET", "/v1/models").status == 502
    fake.listen()
    assert once(front.port, "GET", "/v1/models").status == 200


def test_a_stop_lets_a_stream_finish(fake: FakeVLLM, front: Front) -> None:
    event = chunk(delta_event())
    fake.enqueue(Send(sse_head()), Repeat(event, 10, 0.1), Send(chunk(b"")))
    with Client(front.port) as client:
        reply = client.request("POST", "/v1/chat/completions", body={"stream": True}, stream=True)
        stopping = threading.Thread(target=front.stop, args=[signal.SIGQUIT])
        stopping.start()
        time.sleep(0.2)
        with pytest.raises(ConnectionRefusedError):
            Client(front.port)
        client.read_body(reply)
    stopping.join(5)
    assert reply.whole
    assert reply.body == delta_event() * 10
