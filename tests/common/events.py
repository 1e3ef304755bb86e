"""Server-sent events read by the letter of the specification, for tests.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """What a browser would dispatch."""

    name: str
    data: str
    id: str


def parse(body: bytes) -> list[Event]:
    """Events of a whole stream; one that no blank line closed is none. UTF-8, or it raises."""
    text = body.decode("utf-8").removeprefix("\ufeff")
    found: list[Event] = []
    name, data, last_id = "", [], ""
    for line in re.split(r"\r\n|\n|\r", text)[:-1]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                found.append(Event(name or "message", "\n".join(data), last_id))
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            last_id = value
    return found


def the_error(body: bytes) -> Any:  # noqa: ANN401 - an error object
    """The error of a stream that ends with exactly one error event, and with no [DONE]."""
    events = parse(body)
    assert events, body
    last = json.loads(events[-1].data)
    assert set(last["error"]) == {"message", "type", "param", "code"}, last
    assert parse(body + b"\n\ndata: next\n\n")[:-1] == events, "the last event is not closed"
    assert not [one for one in events[:-1] if '"error"' in one.data], body
    assert "[DONE]" not in [one.data for one in events], body
    for secret in ("127.0.0.1", "Traceback", "/v1/", ".py"):
        assert secret not in events[-1].data, events[-1]
    return last["error"]
