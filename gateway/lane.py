"""The fast path of a stream: a token goes to the client as it was read, framing and all.

vLLM writes each event as one HTTP chunk, and mostly it is read alone:

    e6 CR LF data: {"id":…,"choices":[…]} LF LF CR LF

Between two chunks the parser and the frame counter are at a boundary, so a read that is exactly
this can pass both by: it is written as it is, and counted. Anything else (a read that is cut
otherwise, an event with other line ends, the usage chunk) takes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=4096)
def start_of(size: int) -> bytes:
    """How a chunk of `size` bytes, framing included, begins when it holds an event. Pure.

    No chunk has 21 bytes, or 262: with one digit more the content would be one byte shorter, and
    the digit not needed. Nothing begins as what is returned then.
    """
    digits = next(n for n in range(1, 20) if size - 4 - n < 16**n)
    start = b"%x\r\ndata: " % max(0, size - 4 - digits)
    return start if start.index(b"\r") == digits else b"\r\r"


class Lane:
    """Of one stream. `write`: to the client's transport. `usage_asked`: by us, so a usage chunk is
    not for the client.

    It touches as few objects as it can: with hundreds of streams none of them is in the
    processor's cache when its next token comes.
    """

    __slots__ = ("_usage_asked", "before", "bytes", "events", "last", "otherwise", "write")

    def __init__(self, write: Callable[[bytes], object], usage_asked: bool) -> None:
        self.write = write
        self._usage_asked = usage_asked
        self.otherwise: Callable[[bytes], None]
        self.events = 0
        self.bytes = 0  # without framing
        self.before = self.last = b""  # the last two chunks: a stream is judged by its end

    def carry(self, data: bytes) -> None:
        """Take one read; what is not for this way goes to `otherwise`."""
        size = len(data)
        start = start_of(size)
        if (
            not data.startswith(start)
            or not data.endswith(b"\n\n\r\n")
            or data.find(b"\n", 10) != size - 4
            or data.find(b"\r", 10) != size - 2
            or (self._usage_asked and b'"usage"' in data)
        ):
            self.otherwise(data)
            return
        self.events += 1
        self.bytes += size - len(start) + 4
        self.before = self.last
        self.last = data
        self.write(data)

    def close(self) -> None:
        """The client is gone: what still comes goes nowhere."""
        self.write = len
