"""Who is calling: credential → Key, and the key file followed while we run.

A key is looked up by its SHA-256 digest. The time of a look-up tells at most something about the
digest of what the caller sent, never about a stored key; and a wrong key costs one hash.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from gateway.errors import Headers, Unauthorized
from gateway.forms import Api
from gateway.keys import Key, KeyFileError, Keys, digest, read_keys

log = logging.getLogger("gateway.keys")

# A change works within two seconds: one stat a second, and room for a slow disk.
POLL_S = 1.0

# One scheme, spaces, one token of printable ASCII, nothing after it (RFC 6750, RFC 9110 §11.4).
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]{1,512})")
_PLAIN = re.compile(rb"[!-~]{1,512}")

Signature = tuple[int, int, int, int] | None


def credential(headers: Headers, api: Api) -> bytes:
    """The key that a request came with. Raises Unauthorized; looks nothing up.

    Anthropic's clients send `x-api-key`, or both headers when they were told two keys. Only there
    it is a credential: elsewhere it means nothing and is ignored, so that each other route has one
    place for a key, and no request two.
    """
    if api == "openai" or not any(name == b"x-api-key" for name, _ in headers):
        return bearer_token(headers)
    values = [value for name, value in headers if name == b"x-api-key"]
    if len(values) != 1 or not _PLAIN.fullmatch(values[0]):
        raise Unauthorized("The x-api-key header is not one key.")
    if any(name == b"authorization" for name, _ in headers) and bearer_token(headers) != values[0]:
        raise Unauthorized("x-api-key and Authorization hold different keys: send one.")
    return values[0]


def bearer_token(headers: Headers) -> bytes:
    """The token of the only Authorization header. Raises Unauthorized; compares nothing."""
    values = [value for name, value in headers if name == b"authorization"]
    if not values:
        raise Unauthorized("No API key: send it as `Authorization: Bearer KEY`.")
    found = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if found is None:
        raise Unauthorized("The Authorization header is not one `Bearer KEY`.")
    return found.group(1)


class Keyring:
    """The keys in force. Raises KeyFileError when the file cannot be used at the start."""

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now
        self._seen = _signature(path)
        self._keys: Keys = read_keys(path)

    def caller(self, headers: Headers, api: Api = "openai") -> Key:
        """The key a request came with. Raises Unauthorized."""
        key = self._keys.get(digest(credential(headers, api)))
        if key is None:
            raise Unauthorized("This API key is not valid.")
        if key.expires is not None and self._now() >= key.expires:
            raise Unauthorized("This API key has expired.")
        return key

    async def follow(self) -> None:
        """Reload the file when it changes, until cancelled; a broken one keeps the last good."""
        while True:
            await asyncio.sleep(POLL_S)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        signature = _signature(self._path)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self._keys = read_keys(self._path)
        except KeyFileError as error:
            log.error("keys not reloaded, the last good ones stay in force: %s", error)
        else:
            log.info("keys reloaded: %d", len(self._keys))


def _signature(path: Path) -> Signature:
    """What changes when the file is written, replaced or made readable; None: it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
