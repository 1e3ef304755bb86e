"""The errors a client can see, and their headers; forms.py has their bodies.

    GatewayError                    status  code
    ├── InvalidRequest              400     invalid_request
    │   ├── UploadStalled           408     upload_timeout
    │   └── BodyTooLarge            413     body_too_large
    ├── Unauthorized                401     invalid_api_key          + WWW-Authenticate
    ├── ModelNotAllowed             403     model_not_allowed
    ├── OriginNotAllowed            403     origin_not_allowed
    ├── NotFound                    404     not_found | model_not_found
    ├── MethodNotAllowed            405     method_not_allowed       + Allow
    ├── RateLimited                 429     rate_limit_exceeded      + Retry-After, x-ratelimit-*
    │   └── TokensLimited           429     rate_limit_exceeded      (type tokens)
    ├── Unexpected                  500     internal_error
    ├── UpstreamFailed              502     upstream_error
    ├── Unavailable                 503     (the stack cannot take it now)   + Retry-After
    │   ├── Overloaded              503     overloaded
    │   ├── NotReady                503     not_ready                (phase in the message)
    │   └── Draining                503     shutting_down
    └── UpstreamTimeout             504     upstream_timeout

Messages are written for the client: no upstream address, no stack, no key, no prompt.
"""

from __future__ import annotations

import json
from typing import ClassVar

Headers = list[tuple[bytes, bytes]]


class GatewayError(Exception):
    """Base of the tree. `message` is what the client reads."""

    status: ClassVar[int]
    type: ClassVar[str]
    code: ClassVar[str]

    def __init__(self, message: str, headers: Headers | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers or []


class InvalidRequest(GatewayError):
    status, type, code = 400, "invalid_request_error", "invalid_request"


class UploadStalled(InvalidRequest):
    status, code = 408, "upload_timeout"


class BodyTooLarge(InvalidRequest):
    status, code = 413, "body_too_large"


class Unauthorized(GatewayError):
    status, type, code = 401, "authentication_error", "invalid_api_key"

    def __init__(self, message: str) -> None:
        super().__init__(message, [(b"www-authenticate", b"Bearer")])


class ModelNotAllowed(GatewayError):
    status, type, code = 403, "permission_error", "model_not_allowed"


class OriginNotAllowed(GatewayError):
    """A browser asks for a page whose origin GATEWAY_CORS_ORIGINS does not have."""

    status, type, code = 403, "permission_error", "origin_not_allowed"

    def __init__(self) -> None:
        super().__init__("Web pages of this origin may not call this server.")


class NotFound(GatewayError):
    status, type, code = 404, "invalid_request_error", "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class MethodNotAllowed(GatewayError):
    status, type, code = 405, "invalid_request_error", "method_not_allowed"

    def __init__(self, allowed: list[str]) -> None:
        self.allowed = sorted(allowed)
        names = ", ".join(self.allowed)
        super().__init__(f"This path takes {names} only.", [(b"allow", names.encode())])


class RateLimited(GatewayError):
    """A limit of this key. Retry-After in whole seconds: OpenAI's clients wait up to 60 s. The
    type is OpenAI's word for the kind of limit.
    """

    status, type, code = 429, "requests", "rate_limit_exceeded"

    def __init__(self, message: str, retry_after_s: int, headers: Headers) -> None:
        retry = (b"retry-after", str(retry_after_s).encode())
        super().__init__(message, [retry, *headers])


class TokensLimited(RateLimited):
    type = "tokens"


class Unexpected(GatewayError):
    status, type, code = 500, "server_error", "internal_error"


class UpstreamFailed(GatewayError):
    status, type, code = 502, "server_error", "upstream_error"


class Unavailable(GatewayError):
    """503 with Retry-After, in whole seconds."""

    status, type, code = 503, "server_error", "unavailable"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message, [(b"retry-after", str(retry_after_s).encode())])


class Overloaded(Unavailable):
    code = "overloaded"


class NotReady(Unavailable):
    """An engine start takes a minute or more, but a held request sees it at once."""

    code = "not_ready"

    def __init__(self, phase: str, what: str = "No engine is ready") -> None:
        super().__init__(f"{what} (phase: {phase}). Please retry.", 10)


class Draining(Unavailable):
    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("The server is shutting down. Please retry.", 5)


class UpstreamTimeout(GatewayError):
    status, type, code = 504, "server_error", "upstream_timeout"


def error_json(message: str, kind: str, code: str | int | None) -> bytes:
    """The OpenAI error envelope, UTF-8."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}, ensure_ascii=False).encode()


def error_headers(error: GatewayError, body: bytes) -> Headers:
    length = str(len(body)).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", length)]
    return [*own, *error.headers]
