"""What a real vLLM answered (tests/data/captures), as a test can use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "data/captures"
STREAMS = {
    "chat": ("chat_stream", "completions_stream"),
    "responses": ("responses_stream", "responses_stream_completed"),
    "messages": ("messages_stream",),
}


@dataclass(frozen=True)
class Capture:
    """One answer: names of headers in lower case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def events(self) -> list[bytes]:
        """The body's events, each with its blank line."""
        return [event + b"\n\n" for event in self.body.split(b"\n\n") if event]


def capture(name: str) -> Capture:
    """The answer of that file name, without its ending."""
    head, _, body = (FOLDER / f"{name}.http.log").read_bytes().partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines]
    return Capture(int(first.split()[1]), [(key.lower(), value) for key, value in pairs], body)
