"""Lines for the operator."""

import sys


def say(line: str) -> None:
    """One line on stderr (vLLM's own output goes to stdout)."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
