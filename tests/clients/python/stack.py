"""What every client test needs: where the stack is, what to ask, and what the stack saw.

The suite that starts these files sets STACK_URL, STACK_KEY and STACK_LOGS.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

URL = os.environ["STACK_URL"]
KEY = os.environ["STACK_KEY"]
GATEWAY_LOG = Path(os.environ["STACK_LOGS"]) / "gateway.log"

MODEL = "default"
QUESTION = "What is the capital of France?"
ENDLESS = "Count from one to five hundred in words."
# Half a minute of work for the CPU engine at best, and IGNORE_EOS keeps it from ending sooner.
ENDLESS_TOKENS = 1500
IGNORE_EOS = {"ignore_eos": True}
WEATHER = "What is the weather in Paris for the next 3 days?"
TIMEOUT_S = 120.0
FREED_S = 2.0
# What /status tells of the engine is up to two seconds old, and on a busy host one step of the CPU
# engine takes a second. Still far below what ENDLESS would take.
ENGINE_FREED_S = 15.0

# Small enough for the smallest model: nothing in it can be written at length.
CITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Rome", "Berlin"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = "get_weather"
TOOL_ABOUT = "Weather of a city"
# A PNG of one pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Erk"
    "Jggg=="
)
PIXEL_URL = f"data:image/png;base64,{PIXEL}"


def new_id() -> str:
    """A request id that the gateway takes over."""
    return f"client-{uuid.uuid4().hex}"


def fits(value: object) -> bool:
    """Whether `value` is what CITY_SCHEMA asks for."""
    if not isinstance(value, dict) or value.keys() != {"city", "days"}:
        return False
    city, days = value["city"], value["days"]
    return city in {"Paris", "Rome", "Berlin"} and isinstance(days, int) and 1 <= days <= 7


def wait_until_running() -> None:
    """Until the engine works on a request, as /status shows it."""
    _wait(lambda: _status()["running"] == 1, 30.0, "no request runs at the engine")


def assert_freed(request_id: str) -> None:
    """The log says at once that the client left; gateway and engine have nothing to do."""
    _wait(lambda: outcome(request_id) is not None, FREED_S, f"no log line of {request_id}")
    assert outcome(request_id) == "client_left"
    assert _status()["gateway"]["in_flight"] == 0
    _wait(lambda: _status()["running"] == 0, ENGINE_FREED_S, "the engine works for nobody")


def outcome(request_id: str) -> str | None:
    """How the gateway's log says that the request ended; None: no line yet."""
    for line in GATEWAY_LOG.read_text(encoding="utf-8").splitlines():
        if request_id in line:
            return str(json.loads(line)["outcome"])
    return None


def _status() -> dict[str, Any]:
    with urlopen(f"{URL}/status", timeout=10) as answer:  # noqa: S310 (our own nginx)
        return dict(json.load(answer))


def _wait(condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{otherwise} after {timeout_s:g} s"
        time.sleep(0.02)
