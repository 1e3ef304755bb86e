"""CORS: which web pages may call us from a browser. Decisions only; routes/cors.py applies them.

Keys travel in headers that a page's script sets, never in cookies, so nothing here allows
credentials. nginx decides the same for the errors that it makes itself (http/cors.conf).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from gateway.errors import Headers

ANY = "*"
# What a page may send: our clients' headers. Anything else it asks for is not granted, and its
# browser says which one.
REQUEST_HEADERS = {"accept", "authorization", "content-type", "idempotency-key"}
REQUEST_HEADERS |= {"traceparent", "tracestate", "user-agent", "x-api-key", "x-request-id"}
REQUEST_PREFIXES = ("anthropic-", "openai-", "x-stainless-")
# What its script may read besides the body. nginx has the same list.
EXPOSED = (
    b"x-request-id, retry-after, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
# Seconds that a browser may rely on a preflight: a changed setting is felt in minutes.
MAX_AGE_S = 600

# As a browser writes it: lower case, no path, no slash at the end, no port that is the scheme's
# own. Not `null`: that is every sandboxed page. Any scheme: apps for desktops have theirs.
_ORIGIN = re.compile(r"(?!https://.*:443$|http://.*:80$)[a-z][a-z0-9+.-]*://[a-z0-9._\[\]:-]+")


@dataclass(frozen=True, slots=True)
class Cors:
    """`origins`: exact ones, or only ANY."""

    origins: frozenset[str]

    def allows(self, origin: str) -> bool:
        return origin in self.origins or ANY in self.origins

    def headers(self, origin: str | None) -> Headers:
        """For every answer: an origin that is not on the list, or none, gets no grant. `Vary`, so
        that a cache does not give one origin's answer to another.
        """
        granted: Headers = []
        if origin is not None and self.allows(origin):
            value = ANY if ANY in self.origins else origin
            granted = [
                (b"access-control-allow-origin", value.encode("latin-1")),
                (b"access-control-expose-headers", EXPOSED),
            ]
        return granted if ANY in self.origins else [*granted, (b"vary", b"Origin")]


def is_origin(text: str) -> bool:
    """True for an exact origin, as browsers write them."""
    return _ORIGIN.fullmatch(text) is not None


def preflight_headers(methods: Collection[str], asked: str) -> Headers:
    """The answer to a preflight of an allowed origin. `asked`: Access-Control-Request-Headers."""
    found: Headers = [
        (b"access-control-allow-methods", ", ".join(sorted(methods)).encode()),
        (b"access-control-max-age", str(MAX_AGE_S).encode()),
    ]
    granted = [name for part in asked.split(",") if may_send(name := part.strip().lower())]
    if granted:
        found.append((b"access-control-allow-headers", ", ".join(granted).encode("latin-1")))
    return found


def may_send(name: str) -> bool:
    """True for a header that a page may send."""
    plain = name.replace("-", "").isalnum() and name.isascii()
    return name in REQUEST_HEADERS or (plain and name.startswith(REQUEST_PREFIXES))
