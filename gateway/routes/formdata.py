"""The model that a multipart form names. Pure.

The body is not taken apart as the engine does it. For a key that may use only some models all that
the engine could read as a field called `model` counts, and a form that can be read in two ways is
refused; for other keys such a form is the engine's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.errors import Headers, InvalidRequest
from gateway.keys import Key
from gateway.routes.peek import check_model, wanted

_CONTENT_TYPE = re.compile(
    rb"""multipart/form-data *; *boundary=("?)([0-9a-z'()+_,./:=?-]{1,70})\1""", re.IGNORECASE
)
_NAME = re.compile(
    rb'(?<![\w-])name\s*(\*?)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^";\s]*))', re.IGNORECASE
)


def form_model(key: Key, headers: Headers, body: bytes) -> str | None:
    """The model that the engine will read, the last one named, None for the default. Raises
    InvalidRequest or ModelNotAllowed, both only for a key with an allow-list.
    """
    try:
        named = form_models(headers, body)
    except InvalidRequest:
        if key.models is not None:
            raise
        return None
    for each in named:
        check_model(key, each)
    return wanted(named[-1]) if named else None


def form_models(headers: Headers, body: bytes) -> list[str]:
    """The values of every field named `model`. Raises InvalidRequest for what is no plain form."""
    found = (_model(body, start, end) for start, end in _parts(body, b"--" + _boundary(headers)))
    return [value.decode("utf-8", "replace") for value in found if value is not None]


def _parts(body: bytes, border: bytes) -> Iterator[tuple[int, int]]:
    """Where each part begins and ends; it is not copied, since a recording is large."""
    at = body.find(border)
    while at >= 0:
        start = at + len(border)
        at = body.find(border, start)
        yield start, at if at >= 0 else len(body)


def _boundary(headers: Headers) -> bytes:
    given = next((value for name, value in headers if name == b"content-type"), b"")
    found = _CONTENT_TYPE.fullmatch(given)
    if found is None:
        raise InvalidRequest("The body is not multipart/form-data with one plain boundary.")
    return found.group(2)


def _model(body: bytes, start: int, end: int) -> bytes | None:
    """The value of a part that is, or could be taken for, the field `model`."""
    blank = body.find(b"\r\n\r\n", start, end)
    head, value = (start, blank), (blank + 4, end)
    if blank < 0:
        head, value = (start, end), (end, end)
    for star, quoted, bare in _NAME.findall(body[slice(*head)]):
        if star:
            raise InvalidRequest("A field of the form has an encoded name.")
        if (quoted or bare).replace(b"\\", b"").strip() == b"model":
            return body[slice(*value)].removesuffix(b"\r\n")
    return None
