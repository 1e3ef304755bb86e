"""Text from the environment → typed values. Pure; every refusal says found, wanted and fix.

Numbers are plain ASCII digits: no underscores, no signs and no other scripts' digits, all of which
`int()` would take.
"""

import json
import math
import re
import shlex
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
Parser = Callable[[str], Value]

LONGEST_SHOWN = 60  # of a refused value, so that one line stays one readable line
SIZE_SUFFIXES = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
}  # fmt: skip
YES = ("true", "1", "yes", "on")
NO = ("false", "0", "no", "off")


class BadValueError(ValueError):
    """A value that is refused: `found …; wanted …; fix: …`, in one line."""


def refuse(found: str, wanted: str, fix: str) -> BadValueError:
    """The refusal of `found` (shown quoted, shortened, control characters escaped)."""
    shown = found if len(found) <= LONGEST_SHOWN else found[: LONGEST_SHOWN - 1] + "…"
    return BadValueError(f"found {shown!r}; wanted {wanted}; fix: {fix}")


def whole_number(low: int, high: int, *, fix: str) -> Parser[int]:
    """Parser for a whole number in [low, high]."""

    def parse(text: str) -> int:
        if re.fullmatch(r"[0-9]{1,18}", text) and low <= int(text) <= high:
            return int(text)
        raise refuse(text, f"a whole number from {low} to {high}", fix)

    return parse


def whole_seconds(longest: int) -> Parser[int]:
    """Parser for seconds in [0, longest], decimals allowed, rounded up."""

    def parse(text: str) -> int:
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) and float(text) <= longest:
            return math.ceil(float(text))
        raise refuse(text, f"seconds from 0 to {longest}", "write for example 60")

    return parse


def fraction(text: str) -> float:
    """A share in (0, 1], for example 0.90."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,18})?|\.[0-9]{1,18}", text) and 0 < float(text) <= 1:
        return float(text)
    raise refuse(text, "a share above 0 and up to 1", "write 0.90 for 90 % of the GPU's memory")


def flag(text: str) -> bool:
    """true/false, 1/0, yes/no or on/off, in any case."""
    lowered = text.lower()
    if lowered in YES or lowered in NO:
        return lowered in YES
    raise refuse(text, "true or false", "write true or false")


def size(text: str) -> str:
    """A count of tokens as vLLM reads it: 8192, 8k (8000), 8K (8192), 25.6k. Kept as text."""
    match = re.fullmatch(r"([0-9]{1,18})(\.[0-9]{1,9})?([kKmMgGtT]?)", text)
    wanted = "a whole number of tokens, or one with k (1000) or K (1024), like 8192, 8k or 8K"
    if match is None or (match[2] and match[3] not in tuple("kmgt")):
        raise refuse(text, wanted, "write the number of tokens, for example 8192")
    if int(float(match[1] + (match[2] or "")) * SIZE_SUFFIXES.get(match[3], 1)) < 1:
        raise refuse(text, wanted + ", at least 1", "write the number of tokens, for example 8192")
    return text


def size_or_auto(text: str) -> str:
    """`size`, or auto (also -1): the largest context that fits the memory."""
    return "auto" if text.lower() in ("auto", "-1") else size(text)


def word(what: str, example: str) -> Parser[str]:
    """Parser for one name such as a parser's or a data type's."""

    def parse(text: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", text):
            return text
        raise refuse(text, f"{what} (letters, digits, _ . -)", f"write for example {example}")

    return parse


def model(text: str) -> str:
    """auto, a Hugging Face id (`name`, `owner/name`), or a path (begins with / ./ ../ or ~/)."""
    is_path = text.startswith(("/", "./", "../", "~/")) and text.isprintable()
    if is_path or re.fullmatch(r"[A-Za-z0-9][\w.-]{0,95}(/[\w.-]{1,96})?", text, re.ASCII):
        return text
    raise refuse(
        text, "auto, a Hugging Face id like Qwen/Qwen3-8B, or a folder's path",
        "write the id as its page on the hub shows it, or a path that begins with / or ./",
    )  # fmt: skip


def revision(text: str) -> str:
    """A branch, tag or commit of the model's repository."""
    if re.fullmatch(r"[A-Za-z0-9][\w./-]{0,199}", text, re.ASCII) and ".." not in text:
        return text
    raise refuse(text, "a branch, tag or commit", "write for example main, or leave it empty")


def names(text: str) -> tuple[str, ...]:
    """One or more names clients may put into `model`, separated by commas or spaces."""
    found = tuple(dict.fromkeys(text.replace(",", " ").split()))
    if found and all(re.fullmatch(r"[A-Za-z0-9][\w./:-]{0,199}", n, re.ASCII) for n in found):
        return found
    raise refuse(text, "names of letters, digits and _ . - / :", "write for example my-model")


def compilation_config(text: str) -> dict[str, object]:
    """vLLM's compilation config: a JSON object, or a mode from 0 to 3 alone.

    One pair of surrounding single quotes is taken off: some readers of env files keep them, and
    JSON can't begin with one.
    """
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    body = text[1:-1].strip() if quoted else text
    if re.fullmatch(r"[0-3]", body):
        return {"mode": int(body)}
    fix = 'write for example {"cudagraph_mode":"FULL_AND_PIECEWISE"}'
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise refuse(text, f"a JSON object or a mode from 0 to 3 ({reason})", fix) from error
    if not isinstance(value, dict):
        raise refuse(text, "a JSON object or a mode from 0 to 3", fix)
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def arguments(text: str) -> tuple[str, ...]:
    """Further arguments, split like a shell does (quotes group words; nothing is expanded)."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        reason = str(error)[:1].lower() + str(error)[1:]
        raise refuse(
            text, f"arguments with balanced quotes ({reason})", "close the quote"
        ) from error
