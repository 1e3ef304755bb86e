"""What is known about CUDA graphs so far. Pure."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["in force", "partly", "eager", "not applicable", "unknown"]


@dataclass(frozen=True)
class Graphs:
    """What is known about CUDA graphs, with its reason and what to do (one line each)."""

    verdict: Verdict
    reason: str
    fix: str = ""


NOT_ON_CPU = Graphs("not applicable", "the CPU backend has no CUDA graphs")
NOT_PROVEN = Graphs("unknown", "no report from inside the workers")
