"""Logs as JSON lines on stdout: one line a request, one a noteworthy event.

No header, no query string, no body and no exception text reaches a line: they can hold keys and
prompts. A path is logged only when it is one of our routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, TextIO

import msgspec

from gateway.errors import Headers

# A fixed set: the same words label the metrics and the ledger.
Outcome = Literal[
    "ok",
    "rejected",  # refused by us before an engine saw it; `reason` says why
    "client_left",
    "client_stalled",  # stopped reading for longer than the idle time-out
    "truncated",  # the answer ended without its terminal event
    "upstream_error",  # the engine answered with an error, or not at all
    "drained",  # cut at the end of the drain time
    "internal_error",
]

FLUSH_S = 0.05
MOST_TOKENS = 1_000_000_000  # of one request; more is an engine's mistake

_encode = msgspec.json.Encoder().encode
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Record:
    """What one request becomes: a log line, metrics, ledger entries. Times in seconds, monotonic.

    `model`: one that is served, or "other". `headers`: go out with every answer.
    """

    request_id: str
    method: str
    route: str = "other"
    key: str | None = None
    model: str = "other"
    status: int | None = None
    outcome: Outcome = "ok"
    reason: str | None = None
    upstream: int | None = None
    resent: bool = False
    probe: bool = False  # a health or status request: logged only when it fails, or at debug
    stream: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    frames: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tokens_estimated: bool = False  # the engine's own count never came
    started: float = 0.0
    queued_s: float = 0.0
    first_byte_at: float | None = None
    headers: Headers = field(default_factory=list)

    def line(self, now: float, wall: float) -> bytes:
        """The JSON line; `now` monotonic, `wall` Unix time. Durations in milliseconds."""
        first = None if self.first_byte_at is None else _ms(self.first_byte_at - self.started)
        fields = {
            "ts": round(wall, 3),
            "level": "info",
            "event": "request",
            "request_id": self.request_id,
            "method": self.method,
            "route": self.route,
            "status": self.status,
            "outcome": self.outcome,
            "reason": self.reason,
            "key": self.key,
            "model": self.model,
            "upstream": self.upstream,
            "resent": self.resent,
            "stream": self.stream,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "frames": self.frames,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "tokens_estimated": self.tokens_estimated,
            "queued_ms": _ms(self.queued_s),
            "first_byte_ms": first,
            "duration_ms": _ms(now - self.started),
        }
        return _encode(fields)


def sane(tokens: int) -> int:
    """An engine's own count of one request, unless it cannot be one: a counter never goes back, and
    sums end in 2**63.
    """
    return tokens if 0 <= tokens <= MOST_TOKENS else 0


class RequestLog:
    """Writes request lines. Above level info only those that did not end well.

    Lines leave together, FLUSH_S after the first of them: under load that saves a system call a
    request, and it delays nothing.
    """

    def __init__(
        self,
        stream: BinaryIO,
        level: str = "info",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream
        self._quiet = level not in {"debug", "info"}
        self._probes = level == "debug"
        self._lines: list[bytes] = []
        self._wall = wall

    def write(self, record: Record, now: float) -> None:
        """`now`: monotonic seconds."""
        skip = self._quiet or (record.probe and not self._probes)
        if skip and record.outcome == "ok":
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        self._lines.append(record.line(now, self._wall()))

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            with contextlib.suppress(OSError):  # nobody reads our output any more: serving goes on
                self._stream.write(b"\n".join([*lines, b""]))
                self._stream.flush()


class JsonFormatter(logging.Formatter):
    """One JSON object a line. Of an exception: its type and where it was raised, not its text."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.name,
            "message": record.getMessage(),
        }
        error = _first(record.exc_info[1]) if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            fields["error"] = type(error).__name__
            fields["trace"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(fields)


def set_up_logging(level: str, stream: TextIO = sys.stdout) -> None:
    """Send every logger through the JSON formatter at `level`; libraries no lower than warning."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for noisy in ("asyncio", "sse_starlette", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_not_our_cut)


def request_id(headers: Headers, new_id: Callable[[], str]) -> str:
    """The client's x-request-id when it is short, plain and the only one; else a new one."""
    given = [value for name, value in headers if name == b"x-request-id"]
    if len(given) == 1 and _PLAIN_ID.fullmatch(given[0]):
        return given[0].decode("ascii")
    return new_id()


def _not_our_cut(record: logging.LogRecord) -> bool:
    """uvicorn reports a response that we cut on purpose; our own line has its outcome."""
    return "without completing response" not in record.getMessage()


def _first(error: BaseException | None) -> BaseException | None:
    """Of a task group's errors the first one: the group itself says neither what nor where."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _ms(seconds: float) -> float:
    return int(seconds * 100_000) / 100
