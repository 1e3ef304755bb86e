"""The bytes of the fake engine's answers, as vLLM writes them."""

from __future__ import annotations

PROMPT_TOKENS = 7
UNARY_TOKENS = 2


def chunk(data: bytes) -> bytes:
    """One piece of the chunked transfer encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    """A complete JSON answer with its length."""
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def stream_end(completion: int | None) -> bytes:
    """What follows the last token. `completion`: how many there were, when usage was asked for."""
    usage = [] if completion is None else [event(b"", b',"usage":' + _usage(completion))]
    return b"".join(map(chunk, [FINISH, *usage, DONE])) + b"0\r\n\r\n"


def event(choice: bytes, more: bytes = b"") -> bytes:
    """One event of a streamed chat completion."""
    head = b'{"id":"chatcmpl-8f14e45fceea167a5a36dedd4bea2543","object":"chat.completion.chunk",'
    body = b'"created":1796084059,"model":"m","choices":[' + choice + b"]" + more + b"}"
    return b"data: " + head + body + b"\n\n"


def _usage(completion: int) -> bytes:
    total = PROMPT_TOKENS + completion
    form = b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}'
    return form % (PROMPT_TOKENS, total, completion)


ROLE = event(
    b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
)
DELTA = event(
    b'{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}'
)
FINISH = event(
    b'{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop",'
    b'"stop_reason":null,"token_ids":null}'
)
DONE = b"data: [DONE]\n\n"

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n" + chunk(ROLE)
)
STEP = chunk(DELTA)
UNARY = whole(
    b'{"id":"chatcmpl-8f14e45fceea167a5a36dedd4bea2543","object":"chat.completion",'
    b'"created":1796084059,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"Paris."},"logprobs":null,"finish_reason":"stop"}],"usage":'
    + _usage(UNARY_TOKENS)
    + b"}"
)
MODELS = whole(b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm"}]}')
HEALTH = whole(b"")
FAILED = whole(
    b'{"error":{"message":"worker died","type":"InternalServerError","code":500}}',
    b"500 Internal Server Error",
)
REFUSED = whole(
    b'{"error":{"message":"JSON decode error","type":"Bad Request","code":400}}', b"400 Bad Request"
)
