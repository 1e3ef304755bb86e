"""What passes between a connection and its user: heads, limits, endings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.errors import Headers


class Died(Exception):
    """The connection ended before the response was whole. `replied`: a response byte had come."""

    def __init__(self, replied: bool) -> None:
        super().__init__()
        self.replied = replied


class Silent(Exception):
    """The engine sent nothing for longer than the limit."""


class ClientStalled(Exception):
    """Reading was paused, because the client did not read, for longer than the idle limit."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a response, names in lower case."""

    status: int
    headers: Headers

    def value(self, name: bytes) -> bytes:
        """The first value of that header, b"" when there is none."""
        return next((value for key, value in self.headers if key == name), b"")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of silence: before the first body byte, and between two."""

    first_byte_s: float
    idle_s: float


class Sink(Protocol):
    """Where a response goes; called from the read callback, must not block."""

    def on_head(self, head: Head) -> None: ...

    def on_piece(self, data: bytes) -> None: ...
