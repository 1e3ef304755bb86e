"""One real question through nginx with a real key, after every start."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stackctl import http
from stackctl.errors import StackError, problem

QUESTION = "What is the capital of France?"
# Models whose answer at temperature 0 is known to name the town.
KNOWS_PARIS = re.compile(
    r"smollm2-135m-instruct|smollm2-1\.7b-instruct|llama-3[^/]*instruct|qwen2\.5[^/]*instruct|"
    r"mistral[^/]*instruct|gpt-oss",
    re.IGNORECASE,
)
TIMEOUT_S = 180.0
COUNTED_WITHIN_S = 6.0  # the launcher asks the engine at most once a second


@dataclass(frozen=True)
class Reply:
    text: str
    completion_tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0


def ask(url: str, key: str | None) -> Reply:
    """Ask as a client does; a model without a chat template is asked for a completion. Raises
    StackError with the stack's own reason."""
    began = time.monotonic()
    common = {"temperature": 0, "max_tokens": 64}
    chat = {"messages": [{"role": "user", "content": QUESTION}], **common}
    answer = http.post(url, "/v1/chat/completions", chat, key, TIMEOUT_S)
    if answer.status == 400 and "chat template" in answer.reason.lower():
        plain = {"prompt": f"{QUESTION} The capital of France is", **common}
        answer = http.post(url, "/v1/completions", plain, key, TIMEOUT_S)
    if answer.status != 200:
        raise problem(f"the test question answered with {answer.status}: {answer.reason}",
                      "an answer", "scripts/stack logs")  # fmt: skip
    return parse(answer.body, time.monotonic() - began)


def parse(body: Mapping[str, Any], seconds: float) -> Reply:
    """From a chat or plain completion. Raises StackError when it is neither."""
    try:
        choice = body["choices"][0]
        message = choice.get("message") or {}
        text = message.get("content") or message.get("reasoning") or choice.get("text") or ""
        tokens = int(body["usage"]["completion_tokens"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise StackError("found an answer without choices or usage; wanted a completion") from error
    return Reply(" ".join(str(text).split()), tokens, seconds)


def judge(reply: Reply, model: str) -> None:
    """Raises StackError for an answer that a working engine does not give."""
    if reply.completion_tokens < 1:
        raise StackError("found an answer of no tokens; wanted some; fix: scripts/stack logs vllm")
    if KNOWS_PARIS.search(model) and "paris" not in reply.text.lower():
        raise problem(f"{model} answering {reply.text[:80]!r} to {QUESTION!r}", "Paris",
                      "the engine computes wrongly: scripts/stack logs vllm")  # fmt: skip


def counted(url: str, before: int | None, reply: Reply) -> str:
    """Whether the engine's own counter rose with the answer, in words for the last screen."""
    if before is None:
        return "engine's counter not readable"
    deadline = time.monotonic() + COUNTED_WITHIN_S
    rise = 0
    while time.monotonic() < deadline:
        now = generated(http.get(url, "/status").body)
        rise = (now or 0) - before
        if rise >= reply.completion_tokens:
            break
        time.sleep(0.3)
    if rise < reply.completion_tokens:
        raise problem(f"an answer of {reply.completion_tokens} tokens and an engine that counted"
                      f" {rise}", "the same number", "scripts/stack logs vllm")  # fmt: skip
    return "counted by the engine" if rise == reply.completion_tokens else "amid other requests"


def generated(status: Mapping[str, Any]) -> int | None:
    """vLLM's vllm:generation_tokens_total as the launcher read it."""
    value = status.get("generation_tokens_total")
    return int(value) if isinstance(value, int | float) else None
