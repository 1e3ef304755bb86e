"""The last 60 s of one key, counted in steps that each span at most a second.

    ├─ step ─┼──── step ────┼─ step ─┤now          at most 61 steps, whatever is sent
    a step counts until 60 s after the last request in it, then it goes as a whole

So every request counts for at least 60 s: never more than the limit in any 60 s, not even across
the turn of a minute. It counts for at most 61 s. Times are nanoseconds, whole numbers, so that
"retry after" and "has left" agree exactly.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SECOND: Final = 1_000_000_000
WINDOW: Final = 60 * SECOND


class Step:
    """Requests of one second. `counts`: false once it has left the window."""

    __slots__ = ("closes", "counts", "leaves", "requests", "tokens")

    def __init__(self, now: int) -> None:
        self.closes = now + SECOND
        self.leaves = now + WINDOW
        self.requests = 0
        self.tokens = 0
        self.counts = True


class Window:
    """Sums over its steps. Call `move` before reading them."""

    __slots__ = ("_newest", "_steps", "requests", "tokens")

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0
        self._steps: deque[Step] = deque()
        self._newest: Step | None = None

    def __len__(self) -> int:
        return len(self._steps)

    def move(self, now: int) -> None:
        """Let go of what is older than the window."""
        steps = self._steps
        while steps and steps[0].leaves <= now:
            step = steps.popleft()
            step.counts = False
            self.requests -= step.requests
            self.tokens -= step.tokens

    def add(self, now: int, tokens: int) -> Step:
        """Count a request; `now` never goes back."""
        step = self._newest
        if step is None or step.closes <= now or not step.counts:
            self._newest = step = Step(now)
            self._steps.append(step)
        step.leaves = now + WINDOW
        step.requests += 1
        step.tokens += tokens
        self.requests += 1
        self.tokens += tokens
        return step

    def correct(self, step: Step, tokens: int) -> None:
        """Add `tokens` (may be negative) to a request of that step, if it still counts."""
        if step.counts:
            step.tokens += tokens
            self.tokens += tokens

    def until_requests(self, room: int, now: int) -> int:
        """Nanoseconds until `room` or fewer requests count, if none comes meanwhile."""
        return self._until([step.requests for step in self._steps], self.requests - room, now)

    def until_tokens(self, room: int, now: int) -> int:
        """The same for tokens."""
        return self._until([step.tokens for step in self._steps], self.tokens - room, now)

    def _until(self, amounts: list[int], excess: int, now: int) -> int:
        wait = 0
        for step, amount in zip(self._steps, amounts, strict=True):
            if excess <= 0:
                break
            excess -= amount
            wait = step.leaves - now
        return wait

    def until_empty(self, now: int) -> int:
        """Nanoseconds until nothing counts any more, if nothing comes."""
        return self._steps[-1].leaves - now if self._steps else 0
