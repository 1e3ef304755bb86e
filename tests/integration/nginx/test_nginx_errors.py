"""Every error that nginx makes itself: right status, JSON in the right shape, no HTML."""

import shutil
import time
from pathlib import Path

import pytest
from common.fake_vllm import FakeVLLM
from common.front import MAX_BODY, Edit, Front, replace
from common.rawhttp import Client, Reply, build, once
from common.script import Pause

CHAT = "/v1/chat/completions"
# 408 is not here: nginx closes without a word (see the body that stops, below).
OWN = [400, 403, 404, 405, 411, 412, 413, 414, 416, 429, 494, 495, 496, 497]
OWN += [500, 501, 502, 503, 504, 505, 507]
SEEN = {403: 403, 494: 431, 495: 400, 496: 400, 497: 400, 501: 400}


def raw(port: int, data: bytes, closed_within_s: float = 2.0) -> Reply:
    """Send `data`, read one answer; the connection must then be closed by nginx."""
    with Client(port) as client:
        client.send(data)
        reply = client.read_body(client.read_head())
        assert client.at_end(closed_within_s), (
            "nginx kept the connection, or answered more than once"
        )
    return reply


def assert_openai(reply: Reply, status: int, code: str) -> None:
    assert reply.status == status
    assert reply.header("content-type") == "application/json"
    assert reply.header("x-request-id")
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, None)
    assert error["type"] in {"invalid_request_error", "rate_limit_error", "server_error"}


def returning_all() -> Edit:
    """Locations below both APIs that make nginx itself answer with each status."""
    lines = [
        f"location = /v1/{api}/{status} {{ return {status}; }}"
        for api in ("x", "messages")
        for status in OWN
    ]
    return lambda text: text + "\n".join(lines) + "\n"


def test_each_status_has_both_shapes(tmp_path: Path) -> None:
    edits = {"server/locations.conf": returning_all()}
    with Front(tmp_path, "127.0.0.1:1", edits=edits) as front:
        for status in OWN:
            seen = SEEN.get(status, status)
            openai = once(front.port, "POST", f"/v1/x/{status}")
            assert_openai(openai, seen, openai.json()["error"]["code"])
            anthropic = once(front.port, "POST", f"/v1/messages/{status}")
            assert anthropic.status == seen
            assert anthropic.json()["type"] == "error"
            assert set(anthropic.json()["error"]) == {"type", "message"}
            assert anthropic.json()["request_id"] == anthropic.header("x-request-id")
            retry = openai.header("retry-after")
            assert (retry is not None) == (status in {429, 502, 503}), (status, retry)


def test_no_gateway_is_a_502_with_retry_after(tmp_path: Path) -> None:
    with Front(tmp_path, "127.0.0.1:1") as front:
        for _ in range(3):
            reply = once(front.port, "POST", CHAT, body={"model": "m"})
            assert_openai(reply, 502, "gateway_unreachable")
            assert reply.header("retry-after") == "5"
        line = front.wait_for_log(3)[-1]
    assert (line["method"], line["path"], line["status"]) == ("POST", CHAT, 502)


def test_a_gateway_that_breaks_off_in_its_header_is_a_502(fake: FakeVLLM, front: Front) -> None:
    fake.stop_listening(reset=True)
    assert_openai(once(front.port, "GET", "/v1/models"), 502, "gateway_unreachable")


def test_a_silent_gateway_is_a_504_and_is_asked_once(tmp_path: Path, fake: FakeVLLM) -> None:
    edits = {"server/proxy.conf": replace("proxy_read_timeout 28800s", "proxy_read_timeout 1s")}
    fake.enqueue(Pause(20))
    with Front(tmp_path, f"127.0.0.1:{fake.port}", edits=edits) as front:
        assert_openai(once(front.port, "POST", CHAT, body={}), 504, "gateway_timeout")
    assert len(fake.requests) == 1


def test_a_declared_body_above_the_limit(fake: FakeVLLM, front: Front) -> None:
    """The answer comes at once; then nginx waits 5 s for the rest before it closes."""
    head = build("POST", CHAT, {"Content-Length": "99999999999"}, b"")
    assert_openai(raw(front.port, head, closed_within_s=8), 413, "body_too_large")
    assert fake.log == []


def test_a_whole_body_above_the_limit_is_read_to_the_answer(fake: FakeVLLM, front: Front) -> None:
    body = b"x" * (MAX_BODY + 1)
    assert_openai(once(front.port, "POST", CHAT, body=body), 413, "body_too_large")
    assert fake.log == []


def chunked(size: int) -> bytes:
    head = build("POST", CHAT, {"Transfer-Encoding": "chunked"}, b"x")
    head = head.replace(b"content-length: 1\r\n", b"")[:-1]
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    return head + piece * (size // 65536) + b"0\r\n\r\n"


def test_a_chunked_body_above_the_limit(fake: FakeVLLM, front: Front) -> None:
    with Client(front.port) as client:
        client.send(chunked(MAX_BODY + 65536))
        assert_openai(client.read_body(client.read_head()), 413, "body_too_large")
    assert fake.log == []


def test_a_body_at_the_limit_passes_both_ways(fake: FakeVLLM, front: Front) -> None:
    assert once(front.port, "POST", CHAT, body=b"x" * MAX_BODY).status == 200
    with Client(front.port) as client:
        client.send(chunked(MAX_BODY))
        assert client.read_head().status == 200
    assert [len(one.body) for one in fake.requests] == [MAX_BODY, MAX_BODY]


SMUGGLING = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"Content-Length: +5\r\n\r\nhello",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
]


@pytest.mark.parametrize("rest", SMUGGLING)
def test_an_ambiguous_request_gets_one_400(fake: FakeVLLM, front: Front, rest: bytes) -> None:
    pipelined = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    reply = raw(front.port, b"POST /v1/x HTTP/1.1\r\nHost: x\r\n" + rest + pipelined)
    assert_openai(reply, 400, "invalid_request")
    assert fake.log == []


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"garbage\r\n\r\n", 400, "invalid_request"),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400, "invalid_request"),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"),
        (b"GET /v1/models%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid_request"),
        (b"GET /v1/x HTTP/9.1\r\nHost: x\r\n\r\n", 505, "http_version_not_supported"),
        (
            b"TRACE /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            405,
            "method_not_allowed",
        ),
        (
            b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n",
            405,
            "method_not_allowed",
        ),
        (b"GET /v1/" + b"x" * 17000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "uri_too_long"),
        (b"GET /v1/x HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 17000, 431, "headers_too_large"),
    ],
    ids=["garbage", "no-host", "asterisk", "nul", "version", "trace", "connect", "line", "header"],
)
def test_what_is_not_a_request(
    fake: FakeVLLM, front: Front, data: bytes, status: int, code: str
) -> None:
    assert_openai(raw(front.port, data), status, code)
    assert fake.log == []


def test_a_body_that_stops_ends_without_html(tmp_path: Path, fake: FakeVLLM) -> None:
    """For a client that stopped sending nginx has no words: it closes, and logs 408."""
    edits = {"http/timeouts.conf": replace("client_body_timeout   30s", "client_body_timeout 1s")}
    with Front(tmp_path, f"127.0.0.1:{fake.port}", edits=edits) as front:
        with Client(front.port) as client:
            client.send(build("POST", CHAT, {"Content-Length": "100"}, b"half"))
            assert client.at_end(timeout_s=4)
        assert front.wait_for_log(1)[0]["status"] == 408
    assert fake.log == []


def test_too_many_connections_of_one_address(tmp_path: Path, fake: FakeVLLM) -> None:
    edits = {"http/timeouts.conf": replace("per_address 2048", "per_address 1")}
    fake.enqueue(Pause(20))
    with (
        Front(tmp_path, f"127.0.0.1:{fake.port}", edits=edits) as front,
        Client(front.port) as first,
    ):
        first.send(build("POST", CHAT, {}, {"model": "m"}))
        fake.wait_until(lambda: fake.requests)
        reply = once(front.port, "GET", "/v1/models")
        assert_openai(reply, 429, "too_many_connections")
        assert reply.header("retry-after") == "1"


def test_no_room_for_a_body_is_a_500(fake: FakeVLLM, front: Front) -> None:
    shutil.rmtree(front.out / "client_body")
    reply = once(front.port, "POST", CHAT, body=b"x" * 300_000)
    assert_openai(reply, 500, "internal_error")
    assert fake.log == []


def test_an_error_in_reply_to_head_has_no_body(tmp_path: Path) -> None:
    with Front(tmp_path, "127.0.0.1:1") as front, Client(front.port) as client:
        assert client.request("HEAD", "/v1/models").status == 502
        assert client.request("HEAD", "/nothing").status == 404


def test_a_slow_header_is_cut(tmp_path: Path) -> None:
    edits = {"http/timeouts.conf": replace("client_header_timeout 15s", "client_header_timeout 1s")}
    with Front(tmp_path, "127.0.0.1:1", edits=edits) as front, Client(front.port) as client:
        started = time.monotonic()
        client.send(b"GET /v1/models HTTP/1.1\r\n")
        assert client.at_end(timeout_s=4)
        assert time.monotonic() - started < 3
