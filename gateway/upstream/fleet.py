"""All engines: who serves what, which one takes a request, and the wait for it.

a request ──▶ nobody serves its model, somebody is ready ──▶ ModelNotFound
          ──▶ an engine of it is ready ────────────────────▶ that engine (routing.py)
          ──▶ nobody is ready ─────────────────────────────▶ held in the queue, then judged
          ──▶ only engines of other models are ready ──────▶ held here, then judged
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import ModelNotAllowed, ModelNotFound, NotReady, Overloaded
from gateway.gate import HOLD_RETRY_AFTER_S, Wait
from gateway.upstream.engine import Engine, View
from gateway.upstream.exchange import Wish
from gateway.upstream.routing import Directory, choose, directory

OF_THAT_MODEL = "No engine of that model is ready"
LONGEST_NAME = 200  # characters of it that its 404 repeats
FULL = "Too many requests wait for one already."


@dataclass(eq=False)
class Fleet:
    """`room`: how many requests may wait for one engine while others serve."""

    engines: tuple[Engine, ...]
    room: int = 1024
    _held: int = 0
    _waiters: set[asyncio.Future[None]] = field(default_factory=set)
    _followers: list[Callable[[bool], None]] = field(default_factory=list)
    _directory: Directory = field(init=False)

    def __post_init__(self) -> None:
        self._directory = directory(self.engines)

    def follow(self, turned: Callable[[bool], None]) -> None:
        """Tell, now and after each look, whether an engine is ready."""
        self._followers.append(turned)
        turned(self.ready)

    @property
    def ready(self) -> bool:
        return bool(self._directory.ready)

    @property
    def models(self) -> list[dict[str, Any]]:
        """What the ready engines serve, each name once, the first engine's first."""
        found: dict[str, dict[str, Any]] = {}
        for engine in self._directory.ready:
            for model in engine.view.models:
                found.setdefault(model["id"], model)
        return list(found.values())

    @property
    def default_model(self) -> str | None:
        """What a request that names no model gets."""
        return self._directory.default

    @property
    def phase(self) -> str:
        """In one word, for people: ready, what a launcher says, or waiting."""
        return "ready" if self.ready else phase_of(self.engines)

    def label(self, model: str | None) -> str:
        """`model` when it is one that is served, the default's name for None, else "other"."""
        name = self._directory.default if model is None else model
        return name if name is not None and name in self._directory.serving else "other"

    def several(self, model: str | None) -> bool:
        """More than one engine serves that model, or may turn out to."""
        return len(self.engines) > 1 and len(self._directory.serving.get(model, self.engines)) > 1

    def serving(self, wish: Wish) -> tuple[Engine, ...]:
        """The engines that serve it, ready or not; none: it is not known yet. Raises ModelNotFound,
        and ModelNotAllowed for a default that is not the key's.
        """
        found = self._directory.serving.get(wish.model)
        if found is None:
            if self.ready:
                raise no_such_model(wish.model, self.models, wish.allowed)
            return ()
        if wish.allowed is not None and wish.model is None:
            check_allowed(self._directory.default, wish.allowed)
        return found

    def choose(self, wish: Wish) -> Engine | None:
        """A ready engine that serves it, None while there is none. Raises as `serving`."""
        found = self.serving(wish)
        if len(found) == 1:
            return found[0] if found[0].view.ready else None
        return choose([engine for engine in found if engine.view.ready], wish.conversation)

    def update(self, engine: Engine, view: View) -> None:
        """Note what a probe, or a failed request, saw; wakes those who wait, if it changed much."""
        engine.look(view)
        before, self._directory = self._directory, directory(self.engines)
        if before != self._directory:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
        for turned in self._followers:
            turned(self.ready)

    async def wait_ready(self, timeout_s: float) -> None:
        """Until any engine is ready. Raises NotReady when none is in time."""
        if not self.ready and not await self._until(lambda: self.ready, timeout_s):
            raise NotReady(self.phase)

    async def wait_for(self, wish: Wish, wait: Wait) -> None:
        """While only engines of other models are ready. Raises NotReady when that takes longer than
        the hold, Overloaded when too many wait so, and as `serving`.
        """
        if self._over(wish):
            return
        if self._held >= self.room:
            phase = phase_of(self.serving(wish))
            raise Overloaded(f"{OF_THAT_MODEL} (phase: {phase}). {FULL}", HOLD_RETRY_AFTER_S)
        self._held += 1
        began = asyncio.get_running_loop().time()
        try:
            if not await self._until(lambda: self._over(wish), wait.hold_s - wait.held_s):
                raise NotReady(phase_of(self.serving(wish)), OF_THAT_MODEL)
        finally:
            self._held -= 1
            wait.held_s += asyncio.get_running_loop().time() - began

    def _over(self, wish: Wish) -> bool:
        return not self.ready or any(engine.view.ready for engine in self.serving(wish))

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """False when it did not come true in time."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while not condition():
                    await self._change()
        except TimeoutError:
            return False
        return True

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


def phase_of(engines: Iterable[Engine]) -> str:
    """Of engines that are not ready: what one of their launchers says, or waiting."""
    # A launcher that is ready beside an engine that does not answer: between two probes.
    told = (engine.view.phase for engine in engines)
    return next((phase for phase in told if phase and phase != "ready"), "waiting")


def no_such_model(
    name: str | None, models: Iterable[dict[str, Any]], allowed: frozenset[str] | None
) -> ModelNotFound:
    """The 404 that lists what is served, as far as that key may use it."""
    names = [str(each["id"]) for each in models if allowed is None or each["id"] in allowed]
    served = ", ".join(names) or "none"
    return ModelNotFound(
        f"The model `{str(name)[:LONGEST_NAME]}` does not exist. Served: {served}."
    )


def check_allowed(model: object, allowed: frozenset[str]) -> None:
    """Raises ModelNotAllowed."""
    if not isinstance(model, str) or model not in allowed:
        raise ModelNotAllowed("This API key may not use that model.")
