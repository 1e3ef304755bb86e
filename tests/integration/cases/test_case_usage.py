"""The usage chunk: asked for on the client's behalf, then kept from it, and nothing else changed.

B7.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from common.rawhttp import build
from common.row import Door
from common.script import (
    DONE,
    Fin,
    Pause,
    Reset,
    Send,
    Step,
    answer,
    chunk,
    delta_event,
    finish_event,
    sse_head,
)
from common.servers import AUTH, CHAT

from gateway.usage import BYTES_PER_TOKEN

TEXT = delta_event("", role="assistant") + delta_event("北京🦊") + finish_event()
COUNTS = b'"usage":{"prompt_tokens":3,"total_tokens":10,"completion_tokens":7}'
USAGE = b'data: {"id":"c1","object":"chat.completion.chunk","choices":[],%b}\n\n' % COUNTS
NO_CHOICES = b'data: {"id":"c1",%b}\n\n' % COUNTS


def streamed(*parts: bytes, pause_s: float = 0.0) -> list[Step]:
    steps: list[Step] = [Send(sse_head())]
    for part in parts:
        steps += [Send(chunk(part)), Pause(pause_s)]
    return [*steps, Send(chunk(b""))]


def members(body: bytes) -> list[tuple[str, Any]]:
    """The outermost object's members, in order."""
    pairs: list[tuple[str, Any]] = json.loads(body, object_pairs_hook=list)
    return pairs


# stream_options as the client writes it; whether it asks itself.
OPTIONS: dict[str, tuple[bytes | None, bool]] = {
    "absent": (None, False),
    "null": (b"null", False),
    "empty": (b"{}", False),
    "refused": (b'{"include_usage":false}', False),
    "null inside": (b'{ "include_usage" : null }', False),
    "another key": (b'{"x_future":[1.0, {}]}', False),
    "asked": (b'{"include_usage":true}', True),
    "asked with more": (b'{"include_usage":true,"continuous_usage_stats":true}', True),
    "asked, oddly written": (b'{ "include_usage" :\ttrue }', True),
    "asked with 1": (b'{"include_usage":1}', True),
    "asked with a text": (b'{"include_usage":"True"}', True),
}
# Around it: numbers, blanks and texts that a second writer would change.
PARTS = [
    b'"z": 1.0',
    b'"seed":12345678901234567890',
    b'"text":"\\u00e9 \\"stream_options\\": null \xe5\x8c\x97"',
    b'"nested":{"stream_options":null,"stream":false}',
    b'"stream": true',
    b'"temperature":1E-2',
]


def body_with(options: bytes | None, at: int) -> bytes:
    parts = list(PARTS)
    if options is not None:
        parts.insert(at, b'"stream_options":' + options)
    return b"{ " + b",\n ".join(parts) + b"}"


@pytest.mark.parametrize("name", OPTIONS)
def test_what_the_engine_and_the_client_get(door: Door, name: str) -> None:
    """Whatever the client writes: it is asked for, other bytes stay, who did not ask sees none."""
    options, asked = OPTIONS[name]
    for at in (0, 3, len(PARTS)):
        body = body_with(options, at)
        reply = door.ask(*streamed(TEXT, USAGE, DONE), body=body)
        assert reply.body == (TEXT + USAGE + DONE if asked else TEXT + DONE)
        assert door.line(reply)["outcome"] == "ok"
        got = door.received.body
        assert door.received.header("content-length") == str(len(got)).encode()
        if asked:
            assert got == body
            continue
        assert all(part in got for part in PARTS)
        expected = dict(members(options or b"{}") if options != b"null" else [])
        found = dict(members(got))
        assert dict(found["stream_options"]) == {**expected, "include_usage": True}
        assert [one for one in members(got) if one[0] != "stream_options"] == [
            one for one in members(body) if one[0] != "stream_options"
        ]


NO_STREAM = [
    b'{"stream":false}',
    b"{}",
    b'{"stream":null,"stream_options":null}',
    b'{"stream":false,"stream_options":{"include_usage":true}}',
    b'{"stream_options":{"include_usage":true}}',
    b'{"stream_options":{}}',
    b'{"stream":true,"stream":false}',
    b'{"messages":[{"content":"\\"stream\\":true"}],"x":{"stream":true}}',
]


@pytest.mark.parametrize("body", NO_STREAM)
def test_without_a_stream_nothing_is_added(door: Door, body: bytes) -> None:
    """What a client sends itself goes on, and the engine's refusal of it comes back."""
    refusal = b'{"error":{"message":"no stream","type":"BadRequestError","param":null,"code":400}}'
    reply = door.ask(*answer(refusal, 400), body=body)
    assert (reply.status, reply.body) == (400, refusal)
    assert door.received.body == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream":true}',
        b'{"stream":false,"stream":true}',
        b' {"stream" : true }',
        b'{"stream":1}',
        b'{"stream":"true"}',
    ],
)
def test_asked_for_in_every_spelling_of_a_stream(door: Door, body: bytes) -> None:
    door.ask(*streamed(TEXT, USAGE, DONE), body=body)
    assert dict(members(door.received.body))["stream_options"] == [("include_usage", True)]


def test_usage_in_every_chunk_has_no_effect_alone(door: Door) -> None:
    """vLLM gives it only with include_usage, which is ours: the client's chunks have none."""
    body = b'{"stream":true,"stream_options":{"continuous_usage_stats":true}}'
    door.ask(*streamed(TEXT, USAGE, DONE), body=body)
    options = dict(dict(members(door.received.body))["stream_options"])
    assert options == {"continuous_usage_stats": False, "include_usage": True}


UNASKED = b'{"stream":true}'
SHAPES = {
    "empty choices": USAGE,
    "no choices": NO_CHOICES,
    "null choices": b'data: {"choices":null,%b}\n\n' % COUNTS,
    "usage first": b'data: {%b,"choices":[]}\n\n' % COUNTS,
    "blanks": b'data: { "choices" : [ ] , "usage" : {"prompt_tokens" : 3} }\n\n',
    "cr": USAGE.replace(b"\n", b"\r"),
    "crlf": USAGE.replace(b"\n", b"\r\n"),
    "id and crlf": (b"id: 7\n" + USAGE).replace(b"\n", b"\r\n"),
    "no space": USAGE.replace(b"data: ", b"data:"),
    "id": b"id: 7\n" + USAGE,
    "event name": b"event: message\n" + USAGE,
}


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Whole; byte by byte; in two at places of all kinds."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in (1, 5, 7, len(data) // 2, len(data) - 3, len(data) - 2, len(data) - 1):
        yield [data[:at], data[at:]]


@pytest.mark.parametrize("name", SHAPES)
def test_the_chunk_is_withheld_however_it_is_cut(door: Door, name: str) -> None:
    """Not a byte of it arrives, not a byte beside it is missing."""
    usage = SHAPES[name]
    for parts in cuts(usage):
        reply = door.ask(*streamed(TEXT, *parts, DONE, pause_s=0.001), body=UNASKED)
        assert (reply.body, reply.whole) == (TEXT + DONE, True)
    for whole in ([TEXT + usage + DONE], [TEXT + usage[:40], usage[40:] + DONE]):
        assert door.ask(*streamed(*whole), body=UNASKED).body == TEXT + DONE
    assert door.ask(*streamed(TEXT, usage), body=UNASKED).body == TEXT


LOOKALIKES = [
    delta_event('"choices":[],"usage":{"prompt_tokens":3}'),
    delta_event("x").replace(b"}]}", b'}],"usage":{"prompt_tokens":3}}'),
    delta_event("x").replace(b"}]}", b'}],"usage":null}'),
    b'data: {"choices":[]}\n\n',
    b'data: {"choices":[],"usage":null}\n\n',
    b': "usage":{}\n\n',
    b"data: {}\n\n",
    b'data: {"usage":{"prompt_tokens":3},"choices":[{"delta":{},"finish_reason":null}]}\n\n',
    delta_event("y" * 200_000),
]


@pytest.mark.parametrize("event", LOOKALIKES, ids=range(len(LOOKALIKES)))
def test_what_is_no_usage_chunk_passes(door: Door, event: bytes) -> None:
    """Text about usage, usage beside a choice, an empty event: all the client's."""
    for parts in ([event], [event[:8], event[8:]], [event[:-1], event[-1:]]):
        reply = door.ask(*streamed(*parts, TEXT, USAGE, DONE), body=UNASKED)
        assert reply.body == event + TEXT + DONE


@pytest.mark.parametrize("end", [[Send(chunk(b""))], [Fin()], [Pause(0.03), Reset()]])
@pytest.mark.parametrize("upto", [1, 20, len(USAGE) - 1, len(USAGE)])
def test_a_stream_that_ends_in_its_usage_chunk(door: Door, end: list[Step], upto: int) -> None:
    """After finish_reason nothing is missing but accounts: no error, and no half chunk matters."""
    reply = door.ask(
        Send(sse_head()), Send(chunk(TEXT)), Send(chunk(USAGE[:upto])), *end, body=UNASKED
    )
    assert reply.whole
    assert b'"error"' not in reply.body
    assert reply.body in {TEXT, TEXT + USAGE[:upto]} - {TEXT + USAGE}
    assert door.line(reply)["outcome"] == "ok"


def test_an_estimate_is_of_what_the_client_sent(door: Door) -> None:
    """The bytes that we add to the body are not the client's tokens."""
    reply = door.ask(*streamed(delta_event("a"), delta_event("b")), body=UNASKED)
    line = door.line(reply)
    assert line["tokens_estimated"]
    assert line["prompt_tokens"] == len(UNASKED) // BYTES_PER_TOKEN
    assert line["completion_tokens"] == 2


def test_events_are_not_kept_waiting(door: Door) -> None:
    """Looking for the chunk holds nothing back: each event, half event and comment at once."""
    event = delta_event("a")
    parts = [event, b": up\n", event[:-20], event[-20:], b"retry: 5\n\n", event[:-1], event[-1:]]
    script = [step for part in parts for step in (Send(chunk(part)), Pause(0.12))]
    door.engine.enqueue(Send(sse_head()), *script, Send(chunk(DONE)), Send(chunk(b"")))
    with door.client() as client:
        client.send(build("POST", CHAT, AUTH, UNASKED))
        reply = client.read_body(client.read_head())
    assert reply.body == b"".join(parts) + DONE
    times = [at for at, _ in reply.arrivals]
    steps = [later - at for at, later in itertools.pairwise(times)]
    assert len([step for step in steps if step > 0.06]) >= len(parts) - 2, steps


def test_the_older_completions_route(door: Door) -> None:
    event = (
        b'data: {"object":"text_completion","choices":[{"text":"a","finish_reason":"stop"}]}\n\n'
    )
    reply = door.ask(*streamed(event, USAGE, DONE), body=UNASKED, path="/v1/completions")
    assert reply.body == event + DONE
    assert dict(members(door.received.body))["stream_options"] == [("include_usage", True)]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/v1/score"])
def test_other_apis_are_not_asked(door: Door, path: str) -> None:
    """They have no such option, or count by themselves."""
    door.ask(*answer(), body=UNASKED, path=path)
    assert door.received.body == UNASKED
