"""What goes through: bytes identical in both directions, headers of the hop changed (rule 1)."""

from __future__ import annotations

import gzip
import hashlib
import itertools

import pytest
from common.fake_vllm import FakeVLLM
from common.rawhttp import build, once
from common.script import (
    DONE,
    Fin,
    Pause,
    Send,
    Step,
    answer,
    chunk,
    delta_event,
    finish_event,
    head,
    sse_head,
    stream,
)
from common.servers import AUTH, CHAT, GatewayProcess

END = finish_event() + DONE


def pieces(data: bytes, *cuts: int) -> list[bytes]:
    edges = [0, *cuts, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def streamed(parts: list[bytes], pause_s: float = 0.002) -> list[Step]:
    steps: list[Step] = [Send(sse_head())]
    for part in parts:
        steps += [Send(chunk(part)), Pause(pause_s)]
    return [*steps, Send(chunk(b""))]


def relayed(fake: FakeVLLM, gateway: GatewayProcess, parts: list[bytes]) -> bytes:
    fake.enqueue(*streamed(parts))
    reply = gateway.chat()
    assert reply.status == 200
    assert reply.whole
    return reply.body


EVENT = delta_event("北京🦊é")
CUT = EVENT.index("北".encode())
FOX = EVENT.index("🦊".encode())


@pytest.mark.parametrize(
    "parts",
    [
        [bytes([byte]) for byte in EVENT + END],
        pieces(EVENT + END, CUT + 1),
        pieces(EVENT + END, CUT + 2),
        pieces(EVENT + END, FOX + 2),
    ],
    ids=["bytewise", "after E5", "after E5 8C", "after F0 9F"],
)
def test_characters_cut_between_segments_arrive_whole(
    fake: FakeVLLM, gateway: GatewayProcess, parts: list[bytes]
) -> None:
    """B1."""
    body = relayed(fake, gateway, parts)
    assert hashlib.sha256(body).digest() == hashlib.sha256(EVENT + END).digest()
    assert gateway.wait_event()["outcome"] == "ok"


CRLF_EVENTS = [b"data: {}\r\n\r\n", b"data: {}\r\n\r\n", b"data: [DONE]\r\n\r\n"]


@pytest.mark.parametrize(
    ("parts", "frames"),
    [
        (CRLF_EVENTS, 3),
        (
            [b"data: {}\r", b"\n\r", b"\ndata: {}\r", b"\n\r", b"\ndata: [DONE]\r", b"\n\r", b"\n"],
            3,
        ),
        ([b"data: a\r\ndata: b\n\n"], 1),
        ([b"data: {}\r\r", b"data: [DONE]\r\r"], 2),
    ],
    ids=["crlf", "cut between CR and LF", "mixed in one event", "bare CR"],
)
def test_every_line_ending_is_counted_and_unchanged(
    fake: FakeVLLM, gateway: GatewayProcess, parts: list[bytes], frames: int
) -> None:
    """B3."""
    body = relayed(fake, gateway, parts)
    assert body.startswith(b"".join(parts))
    assert gateway.wait_event()["frames"] == frames


@pytest.mark.parametrize(
    "end",
    [
        [b"data:[DONE]\n\n"],
        [b"data: [DONE]\r\n\r\n"],
        [b"data: [DONE]"],
        [b"data: [DO", b"NE]\n\n"],
        [finish_event()],
    ],
    ids=["no space", "crlf", "no newline", "cut", "finish_reason alone"],
)
def test_terminal_signals_in_every_spelling(
    fake: FakeVLLM, gateway: GatewayProcess, end: list[bytes]
) -> None:
    """B4."""
    assert relayed(fake, gateway, [delta_event(), *end]) == delta_event() + b"".join(end)
    assert gateway.wait_event()["outcome"] == "ok"


def test_done_without_newline_before_a_close_is_complete(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    """B4: the body ends with the connection, as HTTP/1.1 allows."""
    body = delta_event() + b"data: [DONE]"
    fake.enqueue(Send(head(200, [("content-type", "text/event-stream")]) + body), Fin())
    reply = gateway.chat()
    assert (reply.body, reply.whole) == (body, True)
    assert gateway.wait_event()["outcome"] == "ok"


def test_a_done_inside_a_delta_ends_nothing(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B4: the text of the model may be anything."""
    parts = [delta_event("data: [DONE]\n"), delta_event("more"), END]
    assert relayed(fake, gateway, parts) == b"".join(parts)


def test_comments_and_control_blocks_pass(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B5 (1)."""
    parts = [b": up\n\n", delta_event(), b"retry: 3000\n\n", b": up\n", END]
    assert relayed(fake, gateway, parts) == b"".join(parts)


def test_unknown_delta_fields_and_nan_pass(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B13, B30."""
    parts = [
        delta_event("", reasoning="think", x_future={"a": [1]}),
        delta_event("", reasoning_content="think", token_ids=[1, 2]),
        b'data: {"choices":[{"index":0,"delta":{},"logprob":NaN}]}\n\n',
        END,
    ]
    assert relayed(fake, gateway, parts) == b"".join(parts)


def test_infinity_in_a_json_answer_passes(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B30."""
    body = b'{"choices":[{"logprobs":[{"logprob":-Infinity}]}]}'
    fake.enqueue(*answer(body))
    assert gateway.chat(b"{}").body == body


REQUEST = (
    '{"z":1,"chat_template_kwargs":{"x":[1.0]},"structured_outputs":{},"guided_json":null,'
    '"vllm_xargs":{"ä":"é"},"cache_salt":"s", "temperature":1.0,"seed":12345678901234567890,'
    '"top_p":1e999,"n":NaN,"max_tokens":-0}'
).encode()


def test_request_bytes_arrive_unchanged(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B26, B30."""
    assert gateway.chat(REQUEST).status == 200
    assert fake.requests[0].body == REQUEST
    assert fake.requests[0].target == CHAT


def test_a_chunked_request_arrives_unchanged(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    with gateway.client() as client:
        lines = f"host: x\r\ntransfer-encoding: chunked\r\nauthorization: {AUTH['authorization']}"
        client.send(f"POST {CHAT} HTTP/1.1\r\n{lines}\r\n\r\n".encode())
        for part in pieces(REQUEST, 7, 60):
            client.send(chunk(part))
        client.send(chunk(b""))
        assert client.read_body(client.read_head()).status == 200
    assert fake.requests[0].body == REQUEST
    assert fake.requests[0].header("content-length") == str(len(REQUEST)).encode()


def test_a_large_request_and_a_large_answer(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B34: 1.1 MiB passes, both ways."""
    big = b'{"image":"' + b"QUJD" * 290_000 + b'"}'
    fake.enqueue(*answer(big))
    assert gateway.chat(big).body == big
    assert fake.requests[0].body == big


def test_only_headers_of_the_allow_list_go_upstream(
    fake: FakeVLLM, gateway: GatewayProcess
) -> None:
    """B43, rule 11."""
    headers = {
        **AUTH,
        "host": "evil.example",
        "connection": "keep-alive, X-Secret",
        "x-secret": "1",
        "cookie": "a=b",
        "proxy-authorization": "Basic eA==",
        "te": "trailers",
        "upgrade": "h2c",
        "accept-encoding": "gzip",
        "accept": "text/event-stream",
        "x-forwarded-for": "1.2.3.4",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "x-request-id": "abc-123",
    }
    reply = once(gateway.port, "POST", CHAT, headers, b"{}")
    got = {name.decode(): value.decode() for name, value in fake.requests[0].headers}
    assert got == {
        "host": f"127.0.0.1:{fake.port}",
        "content-length": "2",
        "content-type": "application/json",
        "accept": "text/event-stream",
        "traceparent": headers["traceparent"],
        "x-request-id": "abc-123",
    }
    assert reply.header("x-request-id") == "abc-123"
    assert gateway.wait_event()["request_id"] == "abc-123"


@pytest.mark.parametrize("given", ["", "a" * 65, "with space", "semi;colon", 'quo"te', "é"])
def test_a_request_id_that_is_not_plain_is_replaced(
    fake: FakeVLLM, gateway: GatewayProcess, given: str
) -> None:
    reply = gateway.chat(b"{}", **{"x-request-id": given})
    own = reply.header("x-request-id")
    assert own
    assert own != given
    assert fake.requests[0].header("x-request-id") == own.encode()


def test_stream_headers(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """Hop-by-hop headers and a bogus length are gone, what nginx needs is there (B15, B16)."""
    extra = [
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("server", "uvicorn"),
        ("cache-control", "max-age=5"),
        ("openai-processing-ms", "7"),
    ]
    fake.enqueue(Send(sse_head(*extra)), Send(chunk(END)), Send(chunk(b"")))
    reply = gateway.chat()
    assert reply.header("content-type") == "text/event-stream; charset=utf-8"
    assert reply.header("x-accel-buffering") == "no"
    assert reply.header("cache-control") == "no-cache, no-transform"
    assert reply.header("openai-processing-ms") == "7"
    names = {name for name, _ in reply.headers}
    assert not names & {"connection", "keep-alive", "x-hop", "server", "content-length"}


def test_an_event_stream_with_a_length(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """B15: a right length is not passed on, one that is too long makes the stream truncated."""
    fields = [("content-type", "text/event-stream"), ("content-length", str(len(END)))]
    fake.enqueue(Send(head(200, fields) + END))
    reply = gateway.chat()
    assert (reply.body, reply.header("content-length")) == (END, None)
    assert gateway.wait_event()["outcome"] == "ok"


@pytest.mark.parametrize("asked", [{}, {"accept-encoding": "gzip"}])
def test_an_encoded_answer_keeps_its_encoding_and_length(
    fake: FakeVLLM, gateway: GatewayProcess, asked: dict[str, str]
) -> None:
    """B15."""
    body = gzip.compress(b'{"choices":[]}')
    fake.enqueue(*answer(body, headers=[("content-encoding", "gzip")]))
    reply = gateway.chat(b"{}", **asked)
    assert (reply.body, reply.header("content-encoding")) == (body, "gzip")
    assert reply.header("content-length") == str(len(body))


def test_chunks_arrive_as_they_are_written(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    fake.enqueue(*stream("a", "b", "c", "d", interval_s=0.1))
    with gateway.client() as client:
        client.send(build("POST", CHAT, AUTH, b'{"stream":true}'))
        reply = client.read_body(client.read_head())
    times = [moment for moment, _ in reply.arrivals]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(gaps) == 6
    assert sum(gaps) > 0.45  # spread over the 0.7 s that writing took ...
    assert max(gaps) < 0.45  # ... and not in one or two lumps


def test_one_connection_serves_many_requests(fake: FakeVLLM, gateway: GatewayProcess) -> None:
    """Keep-alive on both sides; also after streams and errors."""
    with gateway.client() as client:
        for number in range(6):
            if number == 2:
                fake.enqueue(*answer({"error": {"message": "no"}}, 400))
            body = b'{"stream":true}' if number % 2 else b"{}"
            reply = client.request("POST", CHAT, AUTH, body)
            assert reply.whole
    assert len({request.connection for request in fake.requests}) == 1
