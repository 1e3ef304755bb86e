"""One engine as the gateway sees it: its state, its idle connections, its load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gateway.upstream.connection import Connection, connect
from gateway.watchdog import Watchdog

# vLLM closes an idle connection after 75 s (the launcher sets it so); ours go earlier, or a
# request would meet a closing socket.
IDLE_EXPIRY_S = 60.0
# Same host or same rack: what is not accepted in seconds is not there.
CONNECT_TIMEOUT_S = 5.0
# An engine whose launcher is silent as well for so long is not between two containers.
GONE_S = 60.0


class Unreachable(Exception):
    """The engine does not accept connections; nothing was sent."""


@dataclass(frozen=True)
class View:
    """What the last probe saw. `models`: entries of the engine's /v1/models as it wrote them."""

    ready: bool = False
    reachable: bool = False  # /health answered, or the launcher did
    models: tuple[dict[str, Any], ...] = ()
    status: dict[str, Any] | None = None  # the launcher's, None when it does not answer

    @property
    def phase(self) -> str | None:
        """The launcher's word for it."""
        phase = self.status.get("phase") if self.status else None
        return phase if isinstance(phase, str) else None

    @property
    def names(self) -> tuple[str, ...]:
        """What it serves, its own name first. Of one that is not ready: what its launcher says that
        it will, then what it served last.
        """
        seen = [str(model["id"]) for model in self.models]
        told = None if self.ready or not self.status else self.status.get("served_model_names")
        if isinstance(told, list):
            seen = [name for name in told if isinstance(name, str)] + seen
        return tuple(dict.fromkeys(seen))


@dataclass(eq=False)
class Engine:
    """Mutable state of one upstream; one event loop."""

    index: int
    url: str
    clock: Callable[[], float] = field(repr=False)
    watchdog: Watchdog = field(repr=False)
    view: View = field(default_factory=View)
    in_flight: int = 0  # requests that are at this engine
    ejected: bool = False  # passed over while another can serve (ejection.py), ready or not
    drained: bool = False  # it was told to take no more, and has not come back since
    _idle: dict[Connection, None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self.host = parts.hostname or ""
        self.port = parts.port or 80
        self.authority = parts.netloc.encode("ascii")
        self._heard_at = self.clock()

    def look(self, view: View) -> None:
        """Take in what was seen of it."""
        self.view = view
        if view.reachable or view.ready:
            self._heard_at = self.clock()
            self.drained = view.phase == "draining" and not view.ready

    @property
    def stands(self) -> bool:
        """Worth waiting for: it serves, or has not been taken out or lost."""
        return self.view.ready or not (self.drained or self._silent)

    @property
    def left(self) -> bool:
        """It went on purpose and for good: what it served last is not served any more."""
        return self.drained and self._silent

    @property
    def _silent(self) -> bool:
        return self.clock() - self._heard_at >= GONE_S

    async def connection(self, fresh: bool) -> Connection:
        """The idle connection used last, or a new one. Raises Unreachable."""
        while self._idle and not fresh:
            connection, _ = self._idle.popitem()
            if connection.open and self.clock() - connection.idle_since < IDLE_EXPIRY_S:
                return connection
            connection.abort()
        try:
            return await connect(self.host, self.port, CONNECT_TIMEOUT_S, self.watchdog)
        except OSError:
            raise Unreachable from None

    def keep(self, connection: Connection) -> None:
        """Take back a connection after its exchange; one that cannot be used again is closed."""
        if connection.reusable and connection.open:
            connection.idle_since = self.clock()
            self._idle[connection] = None
        else:
            connection.abort()

    def close_idle(self, older_than_s: float = IDLE_EXPIRY_S) -> None:
        """Close idle connections past their time; with 0 all of them."""
        now = self.clock()
        for connection in list(self._idle):
            if not connection.open or now - connection.idle_since >= older_than_s:
                del self._idle[connection]
                connection.abort()

    async def refuses(self) -> bool:
        """True when the engine does not accept a connection right now."""
        try:
            connection = await connect(self.host, self.port, CONNECT_TIMEOUT_S, self.watchdog)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        connection.abort()
        return False
