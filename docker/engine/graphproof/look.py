"""Reading objects whose shape another project decides: what isn't there is said, never raised."""

from operator import attrgetter
from typing import TypeVar

T = TypeVar("T")


class Look:
    """Attributes of one object by dotted paths. `problems`: what did not fit, in words."""

    def __init__(self, root: object) -> None:
        self._root = root
        self.problems: list[str] = []

    def get(self, path: str, kind: type[T], instead: T) -> T:
        """The value at `path`; `instead`, and a problem, where none of that kind is there."""
        try:
            value = attrgetter(path)(self._root)
        except AttributeError:
            self.problems.append(f"no {path}")
            return instead
        if not isinstance(value, kind):
            self.problems.append(f"{path} is of {type(value).__name__}")
            return instead
        return value

    def maybe(self, path: str, kind: type[T]) -> T | None:
        """The value at `path`, None where none of that kind is there; no problem either way."""
        try:
            value = attrgetter(path)(self._root)
        except AttributeError:
            return None
        return value if isinstance(value, kind) else None
