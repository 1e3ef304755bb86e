"""Read and edit .env exactly as Compose does: a port of compose-go's dotenv package.

Parsing is pure. Rules that surprise: `$NAME` is expanded in unquoted and double-quoted values, an
unquoted value ends at " #", `\\'` inside single quotes is a quote, `export ` is dropped, `NAME:`
works like `NAME=`, and the shell's value of a name wins over the file's own inside `${NAME}`.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stackctl.template import Lookup, TemplateError, substitute

BOM = "\ufeff"
PLAIN = re.compile(r"[A-Za-z0-9_./:@,+=-]*")
_SPACE = "\t\v\f\r \x85\xa0"  # a space that does not end a line
_ESCAPE = re.compile(r"\\(?:[abcfnrtv$\"\\]|0\d{0,3})")
_C_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class EnvFileError(Exception):
    """The file cannot be read as Compose reads it; the text names the line or the template."""


@dataclass(frozen=True)
class EnvFile:
    """Values as Compose gives them, and what an editor left behind in the bytes."""

    values: Mapping[str, str]
    has_bom: bool
    has_cr: bool


def parse_bytes(data: bytes, lookup: Lookup) -> EnvFile:
    """Parse the file's bytes; `lookup` answers for the shell's environment."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EnvFileError(f"byte {error.start} is not UTF-8 text") from error
    return EnvFile(parse(text.removeprefix(BOM), lookup), text.startswith(BOM), b"\r" in data)


def parse(text: str, lookup: Lookup) -> dict[str, str]:
    """Names and values of `text` (no BOM). Raises EnvFileError."""
    values: dict[str, str] = {}
    rest = _skip_to_statement(text)
    while rest:
        line = text.count("\n", 0, len(text) - len(rest)) + 1
        name, inherited, rest = _name(rest, line)
        if inherited:
            value = lookup(name)
            if value is not None:
                values[name] = value
        else:
            values[name], rest = _value(rest, line, values, lookup)
        rest = _skip_to_statement(rest)
    return values


def _skip_to_statement(text: str) -> str:
    text = text.lstrip()
    while text.startswith("#"):
        _, _, text = text.partition("\n")
        text = text.lstrip()
    return text


def _name(text: str, line: int) -> tuple[str, bool, str]:
    """(name, whether it is a bare name that takes the shell's value, what follows)."""
    if re.match(r"export\s+", text):
        text = text.removeprefix("export").lstrip(_SPACE)
    end = next((i for i, char in enumerate(text) if char in "=:\n"), None)
    raw = text if end is None else text[:end]
    bad = next((c for c in raw if not (c in _SPACE or c in "_.-[]" or c.isalnum())), None)
    if bad is not None:
        statement = text.split("\n", 1)[0]
        raise EnvFileError(f"line {line}: unexpected character {bad!r} in {statement!r}")
    if end is None:  # compose-go ends up with an empty name and takes the text as its value
        raise EnvFileError(f"line {line}: {raw.strip()!r} has no '='")
    name = raw.rstrip()
    if " " in name:
        raise EnvFileError(f"line {line}: the name {name!r} contains a space")
    return name, text[end] == "\n", text[end + 1 :].lstrip(_SPACE)


def _value(text: str, line: int, earlier: Mapping[str, str], lookup: Lookup) -> tuple[str, str]:
    def either(name: str) -> str | None:
        value = lookup(name)
        return earlier.get(name) if value is None else value

    quote = text[:1]
    if quote not in {"'", '"'}:
        raw, _, rest = text.partition("\n")
        raw = raw.partition(" #")[0].rstrip()
        return _substituted(raw, either, line), rest
    raw, rest = _quoted(text, quote, line)
    if quote == '"':
        raw = _substituted(_ESCAPE.sub(_escape, raw), either, line)
    return raw, rest


def _substituted(text: str, lookup: Lookup, line: int) -> str:
    try:
        return substitute(text, lookup)
    except TemplateError as error:
        raise EnvFileError(f"line {line}: {error}") from error


def _quoted(text: str, quote: str, line: int) -> tuple[str, str]:
    chars: list[str] = []
    escaped = False
    for i, char in enumerate(text[1:], start=1):
        if char == quote and not escaped:
            return "".join(chars), text[i + 1 :]
        if char == "\\" and not escaped:
            escaped = True
            continue
        if escaped and char != quote:
            chars.append("\\")
        escaped = False
        chars.append(char)
    statement = text.split("\n", 1)[0]
    raise EnvFileError(f"line {line}: the quote of {statement!r} is not closed")


def _escape(match: re.Match[str]) -> str:
    text = match.group()
    if text == r"\$":
        return "$$"
    if text[1] == "0":
        digits = text[2:]
        # Go wants exactly three octal digits; anything else stays as it is written.
        return chr(int(digits, 8)) if re.fullmatch(r"[0-3][0-7]{2}", digits) else text
    return _C_ESCAPES.get(text[1], text[1] if text[1] in '"\\' else text)


def with_value(text: str, name: str, value: str) -> str:
    """`text` with `name` set to `value`, written as it stands (`quoted`): its last line is
    replaced, or one is added at the end. A byte-order mark and the ends of lines stay."""
    entry = f"{name}={value}"
    pattern = re.compile(
        rf"^({BOM}?)[ \t]*(?:export[ \t]+)?{re.escape(name)}[ \t]*[=:][^\r\n]*", re.MULTILINE
    )
    matches = list(pattern.finditer(text))
    if matches:
        last = matches[-1]
        return text[: last.start()] + last[1] + entry + text[last.end() :]
    end = "\r\n" if "\r\n" in text else "\n"
    return text + ("" if not text or text.endswith("\n") else end) + entry + end


def quoted(value: str) -> str:
    """A value without control characters as .env needs it. A quote inside single quotes cannot
    follow a backslash, so such values go into double ones."""
    if PLAIN.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def write_atomically(path: Path, text: str, mode: int) -> None:
    """Replace `path` in one step, so that no reader sees half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        # A write that fails does not say where.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
