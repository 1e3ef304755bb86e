"""What passes between a connection and its user: jobs, heads, limits, endings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from gateway.errors import Headers
from gateway.forms import Api, Ending
from gateway.lane import Lane


class Died(Exception):
    """The connection ended before the response was whole. `replied`: a response byte had come."""

    def __init__(self, replied: bool) -> None:
        super().__init__()
        self.replied = replied


class Silent(Exception):
    """The engine sent nothing for longer than the limit."""


class ClientStalled(Exception):
    """Reading was paused, because the client did not read, for longer than the idle limit."""


class Wish(NamedTuple):
    """What a request asks for. `model`: None is the default. `conversation`: the same bytes for
    all its turns, b"" when that does not matter. `allowed`: the models of its key, None: all.
    """

    model: str | None = None
    conversation: bytes = b""
    allowed: frozenset[str] | None = None


ANYTHING: Final = Wish()


@dataclass(slots=True)  # frozen would make it thrice as dear, once a request
class Job:
    """What goes to an engine: the constant path, our header lines, the client's bytes.

    `api` and `ending`: in which form its answer and our errors are (forms.py). `usage_asked`: by
    us, so the usage chunk is not the client's. `counted`: its tokens are an engine's work, not a
    tokenizer's.
    """

    path: bytes
    header_lines: bytes
    body: bytes
    api: Api = "openai"
    ending: Ending = "chat"
    usage_asked: bool = False
    counted: bool = True
    prompt_tokens: int = 0  # an estimate, should the engine never tell
    wish: Wish = ANYTHING  # which engines may have it

    def request(self, authority: bytes) -> tuple[bytes, bytes]:
        """Head and body; Host is the engine's own."""
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n%b\r\n" % (
            self.path,
            authority,
            len(self.body),
            self.header_lines,
        )
        return head, self.body


@dataclass(slots=True)
class Head:
    """Status and headers of a response, names in lower case."""

    status: int
    headers: Headers
    fields: dict[bytes, bytes] = field(init=False)  # the same, of each name the last

    def __post_init__(self) -> None:
        self.fields = dict(self.headers)

    def value(self, name: bytes) -> bytes:
        """The value of that header, b"" when there is none."""
        return self.fields.get(name, b"")

    @property
    def is_event_stream(self) -> bool:
        """Events that can be read: in a compressed body none can be followed, let alone added."""
        kind = self.value(b"content-type").lower()
        plain = self.value(b"content-encoding").lower() in {b"", b"identity"}
        return kind.startswith(b"text/event-stream") and plain


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of silence: before the first body byte, and between two."""

    first_byte_s: float
    idle_s: float


class Sink(Protocol):
    """Where a response goes; called from the read callback, must not block."""

    def on_head(self, head: Head) -> None: ...

    def on_piece(self, data: bytes) -> None: ...

    def lane(self) -> Lane | None:
        """What takes whole chunks from here on, None: nothing."""

    def on_silence(self, seconds: float) -> None: ...
