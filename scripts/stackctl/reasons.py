"""Which line of a log says why a program ended. Imports nothing."""

import re
from collections.abc import Sequence

# Our own programs end with a line that has its fix; the launcher announces vLLM's reason; nginx
# marks what it cannot start with.
_TELLING = re.compile(r"fix:|engine: failed:|\[emerg\]")


def telling(lines: Sequence[str]) -> str:
    """The last telling line, else the last line."""
    found = [line for line in lines if _TELLING.search(line)]
    chosen = (found or list(lines) or ["(it said nothing)"])[-1]
    return chosen.strip().removeprefix("engine: failed: ")
