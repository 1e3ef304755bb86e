"""One engine as the gateway sees it: its state, its idle connections, its load."""

from __future__ import annotations

import asyncio
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


class Unreachable(Exception):
    """The engine does not accept connections; nothing was sent."""


@dataclass(frozen=True)
class View:
    """What the last probe saw. `models`: entries of the engine's /v1/models as it wrote them."""

    ready: bool = False
    reachable: bool = False  # /health answered, or the launcher did
    models: tuple[dict[str, Any], ...] = ()
    status: dict[str, Any] | None = None  # the launcher's, None when it does not answer


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
    _idle: dict[Connection, None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self.host = parts.hostname or ""
        self.port = parts.port or 80
        self.authority = parts.netloc.encode("ascii")

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


@dataclass(frozen=True)
class Fleet:
    """All engines, which one to use, and the wait for one to be ready."""

    engines: tuple[Engine, ...]
    _waiters: set[asyncio.Future[None]] = field(default_factory=set)
    _followers: list[Callable[[bool], None]] = field(default_factory=list)

    def follow(self, turned: Callable[[bool], None]) -> None:
        """Tell, now and after each look, whether an engine is ready."""
        self._followers.append(turned)
        turned(self.ready)

    @property
    def ready(self) -> bool:
        return any(engine.view.ready for engine in self.engines)

    @property
    def models(self) -> list[dict[str, Any]]:
        """What the ready engines serve, each id once, the first engine's first."""
        ready = [engine.view.models for engine in self.engines if engine.view.ready]
        return list({model["id"]: model for models in reversed(ready) for model in models}.values())

    @property
    def default_model(self) -> str | None:
        """The id that an engine assumes when a request names none."""
        models = next((each.view.models for each in self.engines if each.view.models), ())
        return str(models[0]["id"]) if models else None

    def label(self, model: object) -> str:
        """`model` when it is one that is served, the default's name for None, else "other"."""
        if model is None:
            return self.default_model or "other"
        served = isinstance(model, str) and any(
            model == each["id"] for engine in self.engines for each in engine.view.models
        )
        return str(model) if served else "other"

    @property
    def phase(self) -> str:
        """In one word, for people: ready, what a launcher says, or waiting."""
        if self.ready:
            return "ready"
        told = [phase for each in self.engines if (phase := _phase(each.view))]
        # A launcher that is ready beside an engine that does not answer: between two probes.
        return next((phase for phase in told if phase != "ready"), "waiting")

    def update(self, engine: Engine, view: View) -> None:
        """Note what a probe, or a failed request, saw; wakes those who wait for ready."""
        engine.view = view
        if view.ready:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
        for turned in self._followers:
            turned(self.ready)

    async def wait_ready(self, timeout_s: float) -> Engine | None:
        """An engine for one request, or None when none became ready in time."""
        chosen = choose(self.engines)
        if chosen is not None or timeout_s <= 0:
            return chosen
        try:
            async with asyncio.timeout(timeout_s):
                while chosen is None:
                    await self._next_ready()
                    chosen = choose(self.engines)
        except TimeoutError:
            return None
        return chosen

    async def _next_ready(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


def choose(engines: tuple[Engine, ...]) -> Engine | None:
    """The ready engine with the fewest requests in flight; the first of several. Pure."""
    if len(engines) == 1:
        return engines[0] if engines[0].view.ready else None
    ready = [engine for engine in engines if engine.view.ready]
    ready = [engine for engine in ready if not engine.ejected] or ready
    return min(ready, key=lambda engine: engine.in_flight, default=None)


def _phase(view: View) -> str | None:
    phase = view.status.get("phase") if view.status else None
    return phase if isinstance(phase, str) else None
