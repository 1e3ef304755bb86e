"""Our own comments into a silent stream: only there, only between events, only when asked for.

B5 (2) and (3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import openai
import pytest
from common.events import parse, the_error
from common.row import WITH_USAGE, Door, Row, running
from common.script import DONE, Pause, Send, answer, chunk, delta_event, finish_event, sse_head
from common.servers import KEY

BEAT_S = 0.2
END = chunk(finish_event() + DONE) + chunk(b"")
# A comment line, and nothing that an SDK could take for the end of an event.
BEAT = re.compile(rb"^:[^\r\n]*\n", re.MULTILINE)


@pytest.fixture(scope="module")
def beating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Row]:
    with running(tmp_path_factory.mktemp("beating"), heartbeat_s=BEAT_S) as row:
        yield row


@pytest.fixture(params=["gateway", "nginx"])
def beat(beating: Row, request: pytest.FixtureRequest) -> Door:
    beating.engine.clear()
    return beating.door(request.param)


def test_silence_between_events_is_filled(beat: Door) -> None:
    """Also before the first event; what the engine sent is unchanged."""
    event = chunk(delta_event("a"))
    reply = beat.ask(
        Send(sse_head()),
        Pause(3.5 * BEAT_S),
        Send(event),
        Pause(3.5 * BEAT_S),
        Send(END),
        body=WITH_USAGE,
    )
    assert 3 <= len(BEAT.findall(reply.body)) <= 7
    assert BEAT.sub(b"", reply.body) == delta_event("a") + finish_event() + DONE
    assert len(parse(reply.body)) == 3


HALVES = [
    (delta_event("é🦊")[:60], delta_event("é🦊")[60:]),
    (b"id: 7\n", delta_event("x")),
    (b"event: x\n", delta_event("x")),
    (delta_event("x")[:-1], b"\n"),
    (delta_event("x")[:-2], b"\n\n"),
    (b"d", delta_event("x")[1:]),
    (b"data: {}\r", b"\ndata: {}\r\n\r\n"),
]


@pytest.mark.parametrize(("first", "second"), HALVES)
def test_never_inside_an_event(beat: Door, first: bytes, second: bytes) -> None:
    """B5 (2): half an event, twice the interval, the other half: one valid event, no comment."""
    script = (Send(sse_head()), Send(chunk(first)), Pause(3.5 * BEAT_S), Send(chunk(second)))
    reply = beat.ask(*script, Send(END), body=WITH_USAGE)
    assert reply.body == first + second + finish_event() + DONE


def test_not_before_the_status_is_known(beat: Door) -> None:
    """A comment would make it a 200 (B10); and never into a plain body."""
    error = b'{"error":{"message":"no","type":"x","param":null,"code":1}}'
    reply = beat.ask(Pause(3 * BEAT_S), *answer(error, 429))
    assert (reply.status, reply.body) == (429, error)
    reply = beat.ask(Pause(3 * BEAT_S), *answer(b'{"a":1}'), body=b"{}")
    assert (reply.status, reply.body) == (200, b'{"a":1}')


def test_a_silence_that_is_too_long_is_still_an_error(beat: Door) -> None:
    """Comments of ours are no sign of life of the engine."""
    reply = beat.ask(Send(sse_head() + chunk(delta_event("a"))), Pause(9), body=WITH_USAGE)
    assert the_error(reply.body)["code"] == "upstream_timeout"
    assert BEAT.search(reply.body)


def test_with_the_usage_chunk_withheld(beat: Door) -> None:
    """Nobody asked for it: comments come, the chunk does not."""
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    head, tail = finish_event(), chunk(usage) + chunk(DONE) + chunk(b"")
    reply = beat.ask(Send(sse_head()), Send(chunk(head)), Pause(3.5 * BEAT_S), Send(tail))
    assert BEAT.search(reply.body)
    assert b'"usage"' not in reply.body
    assert len(parse(reply.body)) == 2


def test_an_sdk_reads_over_them(beat: Door) -> None:
    """B5 (3): `id: 7` and an event, then two comments; the client sees two chunks."""
    first = b"id: 7\n" + delta_event("a")
    beat.engine.enqueue(
        Send(sse_head() + chunk(first)), Pause(3.5 * BEAT_S), Send(chunk(delta_event("b")) + END)
    )
    with (
        httpx.Client(trust_env=False) as transport,
        openai.OpenAI(
            api_key=KEY,
            base_url=f"http://127.0.0.1:{beat.port}/v1",
            http_client=transport,
            max_retries=0,
        ) as client,
    ):
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        texts = [one.choices[0].delta.content for one in stream]
    assert texts == ["a", "b", None]


def test_off_by_default(door: Door) -> None:
    reply = door.ask(Send(sse_head()), Pause(0.4), Send(END), body=WITH_USAGE)
    assert reply.body == finish_event() + DONE
