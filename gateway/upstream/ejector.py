"""Keeps the standing of several engines and says when one is out or back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from gateway.upstream.ejection import CAUSES, Standing, broke, could_serve, looked, worked
from gateway.upstream.engine import Engine

log = logging.getLogger("gateway")


class Ejector:
    """Sets `ejected` of each engine. A single one is never ejected, so it costs nothing there."""

    def __init__(self, engines: Sequence[Engine], clock: Callable[[], float]) -> None:
        self._clock = clock
        self.several = len(engines) > 1
        self._standings = {each: Standing() for each in engines} if self.several else {}
        self._totals: dict[tuple[int, str], int] = {
            (each.index, cause): 0 for each in self._standings for cause in CAUSES
        }

    @property
    def totals(self) -> dict[tuple[int, str], int]:
        """How often each engine, by its index, was ejected for each cause."""
        return dict(self._totals)

    def looked(self, engine: Engine, ready: bool) -> None:
        """After a look, or a connection that was refused."""
        before = self._standings.get(engine)
        if before is not None:
            self._set(engine, before, looked(before, ready, self._clock()))

    def answered(self, engine: Engine, whole: bool) -> None:
        """After an answer. `whole`: it did not break, and was no failure of the engine's own."""
        before = self._standings.get(engine)
        if before is None:
            return
        if whole:
            self._standings[engine] = worked(before)
        else:
            others = could_serve(_models(engine), self._others(engine))
            self._set(engine, before, broke(before, others, self._clock()))

    def _others(self, engine: Engine) -> Iterator[tuple[Standing, list[str]]]:
        return (
            (standing, _models(other))
            for other, standing in self._standings.items()
            if other is not engine
        )

    def _set(self, engine: Engine, before: Standing, after: Standing) -> None:
        self._standings[engine] = after
        if before.out == after.out:
            return
        engine.ejected = after.out is not None
        if after.out is None:
            log.info("upstream %d is back", engine.index)
            return
        self._totals[engine.index, after.out] += 1
        if after.out == "broke":
            seconds = after.until - self._clock()
            words = f"{after.broken} answers in a row broke, out for {seconds:.0f} s at least"
        else:
            words = "it is gone, or takes no requests"
        log.warning("upstream %d is passed over: %s", engine.index, words)


def _models(engine: Engine) -> list[str]:
    return [str(model["id"]) for model in engine.view.models]
