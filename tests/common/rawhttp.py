"""A raw HTTP/1.1 client for tests: sends exact bytes, records when each piece arrived.

It hides nothing: a cut response is reported as cut, chunk by chunk, and nothing is retried.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """What came back. `whole` is False when the connection ended before the framing said so."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    whole: bool = False
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)  # monotonic time, piece

    def header(self, name: str) -> str | None:
        """Values of that header joined by ", ", None when there is none."""
        values = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(values) if values else None

    def json(self) -> Any:  # noqa: ANN401 - whatever the server wrote
        return json.loads(self.body)


class Client:
    """One connection. Use as a context manager."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 10.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | object = b"",
        stream: bool = False,
    ) -> Reply:
        """Send a request with Content-Length and read the answer; `stream`: only its head."""
        self.send(build(method, target, headers or {}, body))
        reply = self.read_head()
        if not stream:
            self.read_body(reply, head_only=method == "HEAD")
        return reply

    def read_head(self) -> Reply:
        """Read status and headers (interim 1xx answers are skipped); ConnectionError at EOF."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        raw, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        first, *lines = raw.decode("latin-1").split("\r\n")
        pairs = [line.split(":", 1) for line in lines]
        status = int(first.split(" ", 2)[1])
        if 100 <= status < 200:
            return self.read_head()
        return Reply(status, [(name.lower(), value.strip()) for name, value in pairs])

    def read_body(self, reply: Reply, head_only: bool = False) -> Reply:
        """Read the rest of `reply`; a cut leaves `whole` False."""
        try:
            for _ in () if head_only else self.pieces(reply):
                pass
            reply.whole = True
        except (ConnectionError, ValueError):
            reply.whole = False
        reply.body = b"".join(piece for _, piece in reply.arrivals)
        return reply

    def pieces(self, reply: Reply) -> Any:  # noqa: ANN401 - a generator of bytes
        """Yield body pieces as they arrive (one a chunk); ConnectionError when cut."""
        if reply.header("transfer-encoding") == "chunked":
            yield from self._chunks(reply)
        elif reply.header("content-length") is not None:
            yield self._note(reply, self._exactly(int(reply.header("content-length") or 0)))

    def reset(self) -> None:
        """Leave with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def at_end(self, timeout_s: float = 2.0) -> bool:
        """True when the server closed and left no unread byte."""
        self.socket.settimeout(timeout_s)
        try:
            return not self._buffer and self.socket.recv(65536) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def rest(self) -> bytes:
        """What was received and not read yet."""
        data, self._buffer = self._buffer, b""
        return data

    def _chunks(self, reply: Reply) -> Any:  # noqa: ANN401 - a generator of bytes
        while size := int(self._line(), 16):
            piece = self._exactly(size)
            self._exactly(2)
            yield self._note(reply, piece)
        self._exactly(2)

    def _note(self, reply: Reply, piece: bytes) -> bytes:
        reply.arrivals.append((time.monotonic(), piece))
        return piece

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more()
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    def _exactly(self, size: int) -> bytes:
        """The next `size` bytes; ConnectionError when fewer come."""
        parts, have, self._buffer = [self._buffer], len(self._buffer), b""
        while have < size:
            parts.append(self._receive())
            have += len(parts[-1])
        data = b"".join(parts)
        self._buffer = data[size:]
        return data[:size]

    def _more(self) -> None:
        self._buffer += self._receive()

    def _receive(self) -> bytes:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data


def build(method: str, target: str, headers: Mapping[str, str], body: bytes | object) -> bytes:
    """A request as bytes. `body`: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"host": "test", **{name.lower(): value for name, value in headers.items()}}
    if data or method in {"POST", "PUT"}:
        fields.setdefault("content-length", str(len(data)))
        fields.setdefault("content-type", "application/json")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


def once(
    port: int,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | object = b"",
) -> Reply:
    """One request on a connection of its own."""
    with Client(port) as client:
        return client.request(method, target, headers, body)
