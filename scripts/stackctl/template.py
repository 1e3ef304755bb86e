"""`$NAME` and `${NAME:-x}` as Compose expands them: a port of compose-go's template package.

Imports nothing of the package.
"""

import re
from collections.abc import Callable

_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<named>[_a-zA-Z][_a-zA-Z0-9]*)"
    r"|\{(?:(?P<braced>[_a-zA-Z][_a-zA-Z0-9]*(?::?[-+?](?:.*))?)\}|(?P<invalid>)))"
)
_OPERATORS = (":?", "?", ":-", "-", ":+", "+")

Lookup = Callable[[str], str | None]


class TemplateError(Exception):
    """The text cannot be expanded; it says which part."""


def substitute(template: str, lookup: Lookup) -> str:
    """Expand `$NAME`, `${NAME}` and `${NAME:-x}` and its kin. Raises TemplateError."""
    return _VARIABLE.sub(lambda match: _expand(match, template, lookup), template)


def _expand(match: re.Match[str], template: str, lookup: Lookup) -> str:
    if match["escaped"]:
        return "$"
    if match["named"]:
        return lookup(match["named"]) or ""
    # The pattern is greedy up to the last brace: what lies behind the first closed one is a rest.
    whole = match.group()
    end = _closing_brace(whole)
    inner = _VARIABLE.fullmatch(whole[: end + 1]) if end > 0 else None
    if inner is None or not inner["braced"]:
        raise TemplateError(f"invalid interpolation in {template!r} (write $$ for a $)")
    return _braced(inner["braced"], lookup) + substitute(whole[end + 1 :], lookup)


def _closing_brace(text: str) -> int:
    depth = 0
    i = 0
    while i < len(text):
        if text[i] == "}":
            depth -= 1
            if depth == 0:
                return i
        if text[i] == "{":
            depth += 1
            i += 1
        i += 1
    return -1


def _braced(inside: str, lookup: Lookup) -> str:
    found = min(
        (op for op in _OPERATORS if op in inside),
        key=lambda op: (inside.index(op), -len(op)),
        default=None,
    )
    if found is None:
        return lookup(inside) or ""
    name, _, word = inside.partition(found)
    value = lookup(name)
    present = bool(value) if found.startswith(":") else value is not None
    if found.endswith("-"):
        return value or "" if present else substitute(word, lookup)
    if found.endswith("+"):
        return substitute(word, lookup) if present else value or ""
    if present:
        return value or ""
    raise TemplateError(f"{name} is required: {word}".rstrip(": "))
