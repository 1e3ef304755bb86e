"""One small generation before the engine is ready: that it listens does not say that it computes.

A GPU that lost its memory, a broken kernel or a hung rank shows at the first forward pass with a
request in it, and no client is to be the one who finds out.
"""

import http.client
import json
import time
from dataclasses import dataclass

PROMPT = "The capital of France is"
TOKENS = 4
# The first pass of a shape may compile kernels: minutes on a slow host, never this long.
LIMIT_S = 300.0
LARGEST_ANSWER = 2**20
# An engine that dies of it closes the connection, and then tells its own, better reason.
TRIES, PAUSE_S = 3, 1.0


@dataclass(frozen=True)
class Verdict:
    """`failed`: the engine must not serve; `text` says why, or what was seen."""

    failed: bool
    text: str


def generate(host: str, port: int, model: str) -> Verdict:
    """Ask vLLM for a few tokens."""
    broken = ""
    for _ in range(TRIES):
        began = time.monotonic()
        try:
            status, body = _post(host, port, model)
        except TimeoutError:
            return Verdict(True, f"the first generation did not end within {LIMIT_S:g} s")
        except (OSError, http.client.HTTPException) as error:
            broken = type(error).__name__
            time.sleep(PAUSE_S)
        else:
            return judge(status, body, time.monotonic() - began)
    return Verdict(True, f"the first generation broke off {TRIES} times ({broken})")


def _post(host: str, port: int, model: str) -> tuple[int, bytes]:
    asked = {"model": model, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
    connection = http.client.HTTPConnection(host, port, timeout=LIMIT_S)
    try:
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(asked), headers)
        answer = connection.getresponse()
        return answer.status, answer.read(LARGEST_ANSWER)
    finally:
        connection.close()


def judge(status: int, body: bytes, seconds: float) -> Verdict:
    """Pure. A refusal (4xx) is no failure: embedding models and others complete no text."""
    if status >= 500:
        return Verdict(True, f"the first generation failed with HTTP {status}: {_said(body)}")
    if status != 200:
        return Verdict(False, f"left out: this model completes no text (HTTP {status})")
    tokens = _tokens(body)
    if not tokens:
        return Verdict(True, "the first generation came back without a token")
    return Verdict(False, f"{tokens} tokens in {seconds:.2f} s")


def _tokens(body: bytes) -> int:
    try:
        return int(json.loads(body)["usage"]["completion_tokens"])
    except (ValueError, KeyError, TypeError):
        return 0


def _said(body: bytes) -> str:
    """The error's own message, in one line."""
    try:
        text = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        text = body.decode("utf-8", "replace")
    return " ".join(str(text).split())[:300]
