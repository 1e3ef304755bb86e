"""The real reason of a failed start, as one line, from the output vLLM left. Pure.

vLLM ends with `Engine core initialization failed. See root cause above`, and the cause stands
hundreds of lines higher, in another process' trace. The last specific error of the process that
failed first is the cause: later traces only report that it failed.
"""

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphproof.downgrades import Downgrade

from launcher.status.phases import PREFIX

LONGEST = 600  # characters of a reason
ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exhausted|Timeout)):? ?(.*)$")
USAGE = re.compile(r"^[\w.-]+(?: serve)?: error: (.+)$")
# Errors that only say that another process had one, or that follow from it.
FOLLOW_UPS = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "EngineCore encountered an issue",
    "Worker failed with error",
    "cancelled",
)
FOLLOW_UP_TYPES = ("EngineDeadError", "CancelledError", "BrokenPipeError", "EngineGenerateError")
# The engine's core process went without a trace of its own: killed, or crashed in native code.
CORE_GONE = re.compile(r"(?:engine core exited|Worker\w* .*died) unexpectedly")
CORE_GONE_REASON = (
    "a process of the engine ended without an error of its own: killed, or crashed in native code;"
    " dmesg names the out-of-memory killer and GPU errors (Xid)"
)
GRAPHS = "CUDA graphs: "  # how the plugin graphproof begins its refusal
PYDANTIC_END = re.compile(r" ?\[type=\w+, input_value=")


@dataclass(frozen=True)
class _Line:
    process: str
    text: str


def of_output(lines: Iterable[str]) -> str | None:
    """The cause named in `lines` (vLLM's last output, oldest first), or None."""
    plain = [_plain(line) for line in lines]
    found = [(line.process, reason) for line, reason in _errors(plain)]
    if not found:
        return CORE_GONE_REASON if any(CORE_GONE.search(each.text) for each in plain) else None
    first = found[0][0]
    reasons = [reason for process, reason in _until_other(found, first)]
    return _one_line(reasons[-1])


def _until_other(found: list[tuple[str, str]], first: str) -> Iterator[tuple[str, str]]:
    for process, reason in found:
        if process != first:
            return
        yield process, reason


def _plain(line: str) -> _Line:
    match = PREFIX.match(line)
    end = match.end() if match else 0
    return _Line(match["process"] or "" if match else "", line[end:].rstrip())


def _errors(lines: list[_Line]) -> Iterator[tuple[_Line, str]]:
    for here, line in enumerate(lines):
        if usage := USAGE.match(line.text):
            yield line, f"vLLM refuses its arguments: {usage[1]}; fix: correct VLLM_EXTRA_ARGS"
        elif error := ERROR.match(line.text):
            following = [after.text for after in lines[here + 1 : here + 12]]
            reason = _reason(error[1], error[2], following)
            if reason:
                yield line, reason


def _reason(kind: str, text: str, following: list[str]) -> str | None:
    if kind in FOLLOW_UP_TYPES or any(phrase in text for phrase in FOLLOW_UPS):
        return None
    if kind == "ValidationError" and "validation error" in text:
        return _of_pydantic(following) or f"{kind}: {text}"
    if text.startswith(GRAPHS):
        return text  # the worker's own refusal: a sentence, whatever carries it
    return f"{kind}: {text}" if text else kind


def _of_pydantic(following: list[str]) -> str | None:
    """pydantic's message stands on the lines after its headline and ends with its inputs."""
    taken: list[str] = []
    for text in following:
        end = PYDANTIC_END.search(text)
        taken.append(text[: end.start()] if end else text)
        if end:
            return " ".join(part.strip() for part in taken).removeprefix("Value error, ")
    return None


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= LONGEST else joined[: LONGEST - 1] + "…"


def explained(reason: str, seen: tuple[Downgrade, ...]) -> str:
    """A refusal for want of graphs with the line in which vLLM took them away: the API process
    prints it, so that the worker that refuses can't know it."""
    if not reason.startswith(GRAPHS) or not seen:
        return reason
    told = re.split("; (?:vLLM|fix): ", reason)[0]
    return _one_line(f"{told}; vLLM: {seen[0].line!r}; fix: {seen[0].fix}")


def of_exit(status: int) -> str:
    """What an exit status alone says (negative: the number of the signal that killed it)."""
    if status >= 0:
        return f"vLLM ended by itself with exit status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
    hint = "; the kernel does that when memory runs out: see dmesg" if name == "SIGKILL" else ""
    return f"vLLM was killed by {name}{hint}"
