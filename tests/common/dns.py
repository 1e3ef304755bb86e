"""A DNS server on loopback that knows one kind of answer: A records that a test changes.

with TinyDNS() as dns:
    dns.records["gateway"] = ["127.0.0.2"]      # no entry, or an empty list: NXDOMAIN
"""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType

TTL_S = 600  # what Docker's own DNS says, far longer than any test


class TinyDNS:
    """Answers on 127.0.0.1:`port` from a thread. Use as a context manager."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        self.questions = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._stop = threading.Event()
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> TinyDNS:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(5)
        self._socket.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                query, peer = self._socket.recvfrom(512)
            except TimeoutError:
                continue
            self.questions += 1
            self._socket.sendto(reply(query, self.records), peer)


def reply(query: bytes, records: dict[str, list[str]]) -> bytes:
    """The answer to `query` (RFC 1035 section 4): its A records, NXDOMAIN without any."""
    name, end = _name(query)
    addresses = records.get(name, [])
    flags = 0x8180 if addresses else 0x8183  # a response with recursion; rcode 0 or 3
    header = query[:2] + struct.pack(">HHHHH", flags, 1, len(addresses), 0, 0)
    answers = b"".join(
        struct.pack(">HHHIH", 0xC00C, 1, 1, TTL_S, 4) + socket.inet_aton(address)
        for address in addresses
    )
    return header + query[12 : end + 4] + answers


def _name(query: bytes) -> tuple[str, int]:
    """The name asked for and where it ends."""
    labels, at = [], 12
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    return ".".join(labels), at + 1
