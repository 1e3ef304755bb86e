"""Bodies that are odd and legal, or odd and the engine's to refuse: none is a fault of ours, and
the usage chunk is asked for in all that can stream.
"""

from __future__ import annotations

import json

import pytest
from common.row import Door
from common.script import DONE, Send, Step, chunk, delta_event, finish_event, sse_head

COUNTS = b'"usage":{"prompt_tokens":3,"total_tokens":10,"completion_tokens":7}'
USAGE = b'data: {"id":"c1","choices":[],%b}\n\n' % COUNTS
TEXT = delta_event("a") + finish_event()
SCRIPT: list[Step] = [Send(sse_head()), Send(chunk(TEXT + USAGE + DONE)), Send(chunk(b""))]

# The engine's to refuse: its reader does not take them either.
REFUSED = {
    "not UTF-8": b'{"stream":true,"x":"\xff","stream_options":{}}',
    "too many digits": b'{"stream":true,"x":%b,"stream_options":{}}' % (b"1" * 5000),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_body_is_our_fault(door: Door, name: str) -> None:
    reply = door.ask(*SCRIPT, body=REFUSED[name])
    assert reply.status == 200
    assert door.received.body.startswith(b'{"stream":true,"x":')


ESCAPED = {
    "escaped name": rb'{"stream":true,"stream_opt\u0069ons":{"include_usage":false}}',
    "escaped name, null": rb'{"stream":true,"stream_opt\u0069ons":null}',
    "both": rb'{"stream_options":{},"stream":true,"stream_opt\u0069ons":{"include_usage":false}}',
    "a surrogate": b'{"stream":true,"x":"\xed\xa0\x80","stream_options":{}}',
    "byte order mark": b'\xef\xbb\xbf {"stream":true,"stream_options":null}',
    "blanks at the end": b'{"stream":true , "x":"}" } \r\n',
    "a number for true": b'{"stream":1}',
    "a word for true": b'{"stream":"True"}',
}


@pytest.mark.parametrize("name", ESCAPED)
def test_usage_is_asked_for_and_withheld(door: Door, name: str) -> None:
    """As the engine's reader takes it: the last of several members counts."""
    reply = door.ask(*SCRIPT, body=ESCAPED[name])
    found = json.loads(door.received.body)
    assert found["stream_options"] == {"include_usage": True}
    assert reply.body == TEXT + DONE
    assert door.line(reply)["completion_tokens"] == 7


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be"])
def test_other_encodings_stay_as_they_are(door: Door, encoding: str) -> None:
    body = '{"stream":true}'.encode(encoding)
    assert door.ask(*SCRIPT, body=body).body == TEXT + USAGE + DONE
    assert door.received.body == body


@pytest.mark.parametrize("value", ["1", "1.0", '"true"', '"ON"'])
def test_who_asks_in_another_way_gets_it(door: Door, value: str) -> None:
    """The engine takes these for true."""
    body = b'{"stream":true,"stream_options":{"include_usage":%b}}' % value.encode()
    assert door.ask(*SCRIPT, body=body).body == TEXT + USAGE + DONE
    assert door.received.body == body


def test_usage_in_every_chunk_needs_the_clients_wish(door: Door) -> None:
    """Without include_usage the engine ignores it; asked by us it must not begin to count."""
    body = b'{"stream":true,"stream_options":{"continuous_usage_stats":true}}'
    door.ask(*SCRIPT, body=body)
    options = json.loads(door.received.body)["stream_options"]
    assert options == {"include_usage": True, "continuous_usage_stats": False}
