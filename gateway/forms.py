"""An error in the words of each API: as a body, as an event of a stream, and an engine's own.

               body                                        event that ends a broken stream
    openai     {"error": {message, type, param, code}}     chat:      data: {"error": …}
                                                           responses: event: error, see below
    anthropic  {"type": "error", "error": {type, message}, messages:  event: error, the body's form
                "request_id": …}

Pure. Every path at or below /v1/messages is Anthropic's, known or not; all others are OpenAI's.
"""

from __future__ import annotations

import json
from typing import Literal

from gateway.errors import GatewayError, error_json

Api = Literal["openai", "anthropic"]
# What a stream of that route ends with: `finish_reason` and [DONE]; response.completed,
# .incomplete or .failed; message_stop. `plain`: the route does not stream.
Ending = Literal["chat", "responses", "messages", "plain"]

MESSAGES = "/v1/messages"

# https://docs.anthropic.com/en/api/errors; nginx/templates/http/errors.conf has the same table.
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def api_of(path: str) -> Api:
    """Whose errors a client of that path expects."""
    below = path.startswith(MESSAGES) and path[len(MESSAGES) :][:1] in {"", "/"}
    return "anthropic" if below else "openai"


def anthropic_type(status: int) -> str:
    """Anthropic's name for an HTTP status."""
    general = "invalid_request_error" if 400 <= status < 500 else "api_error"
    return _ANTHROPIC_TYPES.get(status, general)


def error_body(error: GatewayError, api: Api, request_id: str | None) -> bytes:
    """One of our errors as a JSON body, UTF-8. `request_id` None: it came too early for one."""
    if api == "anthropic":
        return _json(_anthropic(error.status, error.message) | {"request_id": request_id})
    return error_json(error.message, error.type, error.code)


def engine_error(status: int, body: bytes, api: Api, request_id: str) -> tuple[bytes, bool]:
    """An engine's error body for a client of that API: (body, False) as it was when it has that
    form already, or (new body, True).
    """
    found = json_object(body)
    error = found.get("error")
    if _has_form(found, api):
        return body, False
    nested = error.get("message") if isinstance(error, dict) else error
    texts = (nested, found.get("detail"), found.get("message"))
    message = next((text for text in texts if isinstance(text, str)), None)
    if status == 404 and message in {None, "Not Found"}:  # FastAPI's own words for no such route
        message = "Not Found: the model that is served has no such route."
    message = message or f"The engine answered with HTTP status {status}."
    if api == "anthropic":
        return _json(_anthropic(status, message) | {"request_id": request_id}), True
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    return error_json(message, kind, "upstream_error"), True


def error_event(error: GatewayError, ending: Ending, mid_event: bool, sequence: int = 0) -> bytes:
    """One event that says why the stream ends here, apart from a half event before it.
    `sequence`: for `responses` the number that its next event would have had.
    """
    if ending == "messages":
        event = b"event: error\ndata: " + _json(_anthropic(error.status, error.message))
    elif ending == "responses":
        event = b"event: error\ndata: " + _json(_responses_error(error, sequence))
    else:
        event = b"data: " + error_json(error.message, error.type, error.code)
    return (b"\n\n" if mid_event else b"") + event + b"\n\n"


def _responses_error(error: GatewayError, sequence: int) -> dict[str, object]:
    """The documented event has flat fields. The nested object beside them is what makes OpenAI's
    own clients raise (without it they hand the event on like any other), and what others read.
    """
    flat = {"code": error.code, "message": error.message, "param": None}
    nested = {"type": error.type, **flat}
    return {"type": "error", "sequence_number": sequence, **flat, "error": nested}


def _anthropic(status: int, message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": anthropic_type(status), "message": message}}


def _has_form(found: dict[str, object], api: Api) -> bool:
    error = found.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return False
    return api == "openai" or (found.get("type") == "error" and isinstance(error.get("type"), str))


def json_object(body: bytes) -> dict[str, object]:
    """The JSON object in a body, empty when it is none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
