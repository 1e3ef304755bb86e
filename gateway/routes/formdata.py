"""The model that a multipart form names, for keys that may use only some. Pure.

The body is not taken apart as the engine does it: everything that the engine could read as a field
called `model` counts, and a form that can be read in two ways is refused.
"""

from __future__ import annotations

import re

from gateway.errors import Headers, InvalidRequest
from gateway.keys import Key
from gateway.routes.peek import check_model

_CONTENT_TYPE = re.compile(
    rb"""multipart/form-data *; *boundary=("?)([0-9a-z'()+_,./:=?-]{1,70})\1""", re.IGNORECASE
)
_NAME = re.compile(
    rb'(?<![\w-])name\s*(\*?)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^";\s]*))', re.IGNORECASE
)


def check_form_model(key: Key, headers: Headers, body: bytes, default: str | None) -> None:
    """As peek.check_model, for a form. Raises InvalidRequest or ModelNotAllowed."""
    if key.models is None:
        return
    for named in form_models(headers, body) or (None,):
        check_model(key, named, default)


def form_models(headers: Headers, body: bytes) -> list[str]:
    """The values of every field named `model`. Raises InvalidRequest for what is no plain form."""
    boundary = _boundary(headers)
    parts = body.split(b"--" + boundary)[1:]
    return [value.decode("utf-8", "replace") for value in map(_model, parts) if value is not None]


def _boundary(headers: Headers) -> bytes:
    given = next((value for name, value in headers if name == b"content-type"), b"")
    found = _CONTENT_TYPE.fullmatch(given)
    if found is None:
        raise InvalidRequest("The body is not multipart/form-data with one plain boundary.")
    return found.group(2)


def _model(part: bytes) -> bytes | None:
    """The value of a part that is, or could be taken for, the field `model`."""
    head, _, value = part.partition(b"\r\n\r\n")
    for star, quoted, bare in _NAME.findall(head):
        if star:
            raise InvalidRequest("A field of the form has an encoded name.")
        if (quoted or bare).replace(b"\\", b"").strip() == b"model":
            return value.removesuffix(b"\r\n")
    return None
