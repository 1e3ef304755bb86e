"""How requests end when something goes wrong: statuses, error events, cuts, time-outs."""

from __future__ import annotations

import json
import time

import pytest
from common.events import the_error
from common.fake_vllm import FakeVLLM
from common.rawhttp import Reply, build
from common.script import (
    DONE,
    SSE,
    Fin,
    Pause,
    Repeat,
    Reset,
    Script,
    Send,
    answer,
    chunk,
    delta_event,
    finish_event,
    head,
    sse_head,
)
from common.servers import AUTH, CHAT, GatewayProcess

ROLE = delta_event("", role="assistant")
BEGUN = (Send(sse_head()), Send(chunk(ROLE)), *[Send(chunk(delta_event()))] * 3)


def assert_ends_with_one_error(reply: Reply, sent: bytes) -> dict[str, object]:
    """One well-formed error event after what was sent, no invented stop, no [DONE]."""
    assert reply.status == 200
    assert reply.whole
    assert reply.body.startswith(sent)
    error: dict[str, object] = the_error(reply.body)
    assert {"message", "type", "param", "code"} == set(error)
    assert reply.body.count(b'"error"') == 1
    assert b"[DONE]" not in reply.body
    assert b'"finish_reason": "stop"' not in reply.body
    assert b"127.0.0.1" not in reply.body
    return error


@pytest.mark.parametrize(
    "script",
    [
        (*BEGUN, Pause(0.02), Reset()),
        (*BEGUN, Fin()),
        (*BEGUN, Send(chunk(b""))),
        (*BEGUN[:2], Pause(0.02), Reset()),
        (*BEGUN, Send(b"xyz\r\n")),
        (*BEGUN, Send(b"5" * 70_000)),
    ],
    ids=["reset", "fin", "clean end", "reset after role", "broken chunk", "endless chunk size"],
)
def test_a_truncated_stream_ends_with_an_error_event(
    fake: FakeVLLM, gateway: GatewayProcess, script: Script
) -> None:
    """B8, B9."""
    fake.enqueue(*script)
    error = assert_ends_with_one_error(gateway.chat(), ROLE)
    assert error["code"] == "upstream_error"
    assert gateway.wait_event()["outcome"] == "truncated"


@pytest.mark.parametrize("half", [delta_event()[:40], b"data: {}\n", b"data: {}\r", b": comm"])
def test_a_half_event_is_not_glued_to_the_error(
    fake: FakeVLLM, gateway: GatewayProcess, half: bytes
) -> None:
    """B9."""
    fake.enqueue(*BEGUN, Send(chunk(half)), Pause(0.02), Reset())
    reply = gateway.chat()
    assert_ends_with_one_error(reply, ROLE)
    assert half + b"\n\ndata: " in reply.body


def test_two_choices_of_which_one_finished_are_truncated(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    unfinished = delta_event().replace(b'"index": 0', b'"index": 1')
    fake.enqueue(*BEGUN, Send(chunk(finish_event())), Send(chunk(unfinished)), Reset())
    gateway.chat()
    assert gateway.wait_event()["outcome"] == "truncated"


def test_a_reset_after_done_is_complete(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    fake.enqueue(*BEGUN, Send(chunk(finish_event() + DONE)), Pause(0.05), Reset())
    reply = gateway.chat()
    assert reply.whole
    assert reply.body.endswith(DONE)
    assert gateway.wait_event()["outcome"] == "ok"


def test_silence_in_a_line_is_an_error_event(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B9, B22: the idle time-out of the gateway, and the engine's socket is closed."""
    fake.enqueue(*BEGUN, Send(chunk(b"data: {")), Pause(20))
    started = time.monotonic()
    error = assert_ends_with_one_error(gateway.chat(), ROLE)
    assert error["code"] == "upstream_timeout"
    assert 0.9 < time.monotonic() - started < 4
    fake.wait_until(lambda: fake.requests[0].closed_at, 1)


def test_slow_but_not_silent_is_fine(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """Six gaps of 0.3 s: longer than both time-outs together, none longer than the idle one."""
    parts = [step for _ in range(6) for step in (Send(chunk(delta_event())), Pause(0.3))]
    fake.enqueue(Send(sse_head()), *parts, Send(chunk(DONE)), Send(chunk(b"")))
    assert gateway.chat().body.endswith(DONE)


@pytest.mark.parametrize("body", [b"{}", b'{"stream":true}'])
def test_no_head_in_time_is_a_504(fake: FakeVLLM, gateway: GatewayProcess, body: bytes) -> None:
    """B22 (1); the request is not sent again after a time-out (B24)."""
    fake.enqueue(Pause(20))
    reply = gateway.chat(body)
    assert (reply.status, reply.json()["error"]["code"]) == (504, "upstream_timeout")
    fake.wait_until(lambda: fake.requests[0].closed_at, 1)
    assert len(fake.requests) == 1


def test_a_stream_head_and_then_silence(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B22 (2): the status is out, so the error is an event."""
    fake.enqueue(Send(sse_head()), Pause(20))
    error = assert_ends_with_one_error(gateway.chat(), b"")
    assert error["code"] == "upstream_timeout"


def test_a_plain_head_and_then_silence_is_a_504(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    fields = [("content-type", "application/json"), ("content-length", "10")]
    fake.enqueue(Send(head(200, fields)), Pause(20))
    assert gateway.chat(b"{}").status == 504


@pytest.mark.parametrize("end", [(Pause(0.05), Reset()), (Fin(),), (Pause(20),)])
@pytest.mark.parametrize("framing", [("content-length", "99"), ("transfer-encoding", "chunked")])
def test_a_plain_body_that_breaks_off_is_cut(
    fake: FakeVLLM, gateway: GatewayProcess, end: Script, framing: tuple[str, str]
) -> None:
    """Never a valid short body."""
    part = b'{"choices":['
    data = part if framing[0] == "content-length" else chunk(part)
    fake.enqueue(Send(head(200, [("content-type", "application/json"), framing]) + data), *end)
    with gateway.client() as client:
        reply = client.request("POST", CHAT, AUTH, b"{}")
        assert reply.status == 200
        assert not reply.whole
        assert client.at_end()
    assert gateway.wait_event()["outcome"] == "truncated"


OPENAI = {"error": {"message": "bad", "type": "BadRequestError", "param": None, "code": 400}}


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503])
def test_an_openai_error_is_relayed_as_it_is(
    fake: FakeVLLM, gateway: GatewayProcess, status: int
) -> None:
    """B10, B27: the status before ours, for stream requests too."""
    body = json.dumps(OPENAI, indent=1).encode()
    fake.enqueue(*answer(body, status, headers=[("retry-after", "7")]))
    reply = gateway.chat()
    assert (reply.status, reply.body, reply.header("retry-after")) == (status, body, "7")
    event = gateway.wait_event()
    assert (event["outcome"], event["status"]) == ("upstream_error", status)


@pytest.mark.parametrize(
    ("status", "script", "message"),
    [
        (404, answer({"detail": "Not Found"}, 404), "Not Found"),
        (401, answer({"error": "Unauthorized"}, 401), "Unauthorized"),
        (503, answer(b"<html>503</html>", 503, "text/html", [("retry-after", "7")]), "503"),
        (500, answer(b"", 500, "text/plain"), "500"),
        (400, answer(b'{"object":"error","message":"old","code":4}', 400), "old"),
        (502, answer(b"\xff\xfe", 502, "application/octet-stream"), "502"),
        (500, answer(b"[" * 200_000, 500), "500"),
        (500, answer(b"x" * 400_000, 500), "500"),
    ],
    ids=["detail", "string", "html", "empty", "old vLLM", "binary", "nested", "huge"],
)
def test_a_foreign_error_is_wrapped_and_keeps_its_status(
    fake: FakeVLLM, gateway: GatewayProcess, status: int, script: Script, message: str
) -> None:
    fake.enqueue(*script)
    reply = gateway.chat()
    assert reply.status == status
    assert message in reply.json()["error"]["message"]
    assert reply.header("content-type") == "application/json"
    assert reply.header("content-length") == str(len(reply.body))
    assert reply.header("retry-after") == ("7" if message == "503" and status == 503 else None)


def test_a_short_error_with_a_wrong_length_is_an_error(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    """B15: cut mid-string upstream, whole JSON here."""
    fields = [("content-type", "application/json"), ("content-length", "33")]
    fake.enqueue(Send(head(400, fields) + json.dumps(OPENAI).encode()), Fin())
    reply = gateway.chat()
    assert reply.status == 400
    assert reply.json()["error"]["message"]


@pytest.mark.parametrize("end", [(Fin(),), (Pause(20),), (Repeat(b"x" * 50_000, 10_000, 0),)])
def test_an_error_body_that_does_not_end_well_keeps_its_status(
    fake: FakeVLLM, gateway: GatewayProcess, end: Script
) -> None:
    """Cut, silent or endless: the status is what counts."""
    fields = [("content-type", "application/json"), ("content-length", "999999999")]
    fake.enqueue(Send(head(422, fields) + b"{"), *end)
    reply = gateway.chat()
    assert reply.status == 422
    assert reply.json()["error"]["message"]
    fake.wait_until(lambda: fake.requests[0].closed_at or end == (Fin(),), 1)


def test_json_for_a_stream_request_stays_json(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B10: the engine ignored the flag."""
    fake.enqueue(*answer())
    reply = gateway.chat()
    assert reply.header("content-type") == "application/json"
    assert reply.header("content-length") == str(len(reply.body))


def test_an_error_event_of_the_engine_is_relayed_unchanged(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    """B10: as vLLM ends a stream that failed, [DONE] included."""
    body = b'data: {"error":{"message":"boom","code":500}}\n\n' + DONE
    fake.enqueue(Send(sse_head()), Send(chunk(body)), Send(chunk(b"")))
    assert gateway.chat().body == body
    assert gateway.wait_event()["outcome"] == "upstream_error"


def test_an_event_stream_of_zero_bytes(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B10."""
    fake.enqueue(Send(sse_head() + chunk(b"")))
    assert_ends_with_one_error(gateway.chat(), b"")


def test_a_json_answer_of_zero_bytes_is_a_502(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B10."""
    fake.enqueue(*answer(b""))
    assert gateway.chat(b"{}").status == 502


@pytest.mark.parametrize(
    "reply_bytes",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000,
    ],
    ids=["not http", "bad header", "endless header"],
)
def test_a_reply_that_is_no_http_is_a_502(
    fake: FakeVLLM, gateway: GatewayProcess, reply_bytes: bytes
) -> None:
    fake.enqueue(Send(reply_bytes), Pause(5))
    reply = gateway.chat()
    assert (reply.status, reply.json()["error"]["code"]) == (502, "upstream_error")
    fake.wait_until(lambda: fake.requests[0].closed_at, 1)


def test_interim_answers_are_skipped(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    fake.enqueue(Send(head(103, [("link", "<x>")])), *answer())
    assert gateway.chat(b"{}").status == 200


def test_bytes_after_the_answer_close_the_connection(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    fields = [("content-type", SSE), ("content-length", str(len(DONE)))]
    fake.enqueue(Send(head(200, fields) + DONE + b"HTTP/1.1 200 OK\r\n\r\n"), Pause(1))
    assert gateway.chat().body == DONE
    assert gateway.chat(b"{}").status == 200
    assert len({request.connection for request in fake.requests}) == 2


def test_a_slow_reader_stops_the_engine_not_the_memory(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    """Rule 5: 64 MiB offered, the client reads nothing for a while, then everything."""
    big = b"data: " + b"x" * 65_530 + b"\n\n"
    fake.enqueue(Send(sse_head()), Repeat(chunk(big), 1024, 0), Send(chunk(DONE)), Send(chunk(b"")))
    before = _rss(gateway)
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, b'{"stream":true}'))
        time.sleep(0.4)
        assert _rss(gateway) - before < 16 << 20
        reply = client.read_body(client.read_head())
    assert reply.whole
    assert len(reply.body) == 1024 * len(big) + len(DONE)


def test_a_client_that_never_reads_is_dropped(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    big = chunk(b"data: " + b"x" * 65_530 + b"\n\n")
    fake.enqueue(Send(sse_head()), Repeat(big, 1024, 0))
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, b'{"stream":true}'))
        fake.wait_until(lambda: fake.requests and fake.requests[0].closed_at, 3)
    assert gateway.wait_event()["outcome"] == "client_stalled"
    assert gateway.status()["gateway"]["in_flight"] == 0


def _rss(gateway: GatewayProcess) -> int:
    """Resident bytes."""
    with open(f"/proc/{gateway.process.pid}/statm") as file:  # noqa: PTH123 - procfs
        return int(file.read().split()[1]) * 4096
