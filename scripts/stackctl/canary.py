"""One real question through nginx with a real key, after every start: does the engine compute?

A model that chats or completes is asked for a capital, one that embeds for two vectors. Other
kinds (rerankers, transcription) are left out, in words.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stackctl import http
from stackctl.errors import StackError, problem

QUESTION = "What is the capital of France?"
OTHER = "A cat sleeps on a warm roof."
# Models whose answer at temperature 0 is known to name the town.
KNOWS_PARIS = re.compile(
    r"smollm2-135m-instruct|smollm2-1\.7b-instruct|llama-3[^/]*instruct|qwen2\.5[^/]*instruct|"
    r"mistral[^/]*instruct|gpt-oss",
    re.IGNORECASE,
)
TIMEOUT_S = 180.0
COUNTED_WITHIN_S = 6.0  # the launcher asks the engine at most once a second
GENERATED = "generation_tokens_total"
READ = "prompt_tokens_total"
LOGS = "scripts/stack logs vllm"


@dataclass(frozen=True)
class Reply:
    """`tokens` as the engine's `counter` in /status has to count them. `reasons`: it ended, at the
    length that was asked for, before the answer began."""

    text: str
    tokens: int
    seconds: float
    counter: str = GENERATED
    asked: str = QUESTION
    reasons: bool = False

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def ask(url: str, key: str | None, model: str | None = None) -> Reply | str:
    """Ask as a client does, for the first kind of answer that the model gives; text: why nothing
    could be asked. Raises StackError with the stack's own reason."""
    named = {"model": model} if model else {}
    for path, body, read in KINDS:
        began = time.monotonic()
        answer = http.post(url, path, {**named, **body}, key, TIMEOUT_S)
        if answer.status == 200:
            return read(answer.body, time.monotonic() - began)
        if answer.status == 429:
            return f"left out: a limit of the key refused it ({answer.reason})"
        if not _is_no_such_kind(answer):
            raise problem(f"the test question answered with {answer.status}: {answer.reason}",
                          "an answer", "scripts/stack logs")  # fmt: skip
    return "left out: this model neither chats, completes nor embeds"


def _is_no_such_kind(answer: http.Answer) -> bool:
    """vLLM has no route for what the model does not do; the gateway says that in its words."""
    if answer.status == 400:
        return "chat template" in answer.reason.lower()
    return answer.status == 501 or (answer.status == 404 and "no such route" in answer.reason)


def parse(body: Mapping[str, Any], seconds: float) -> Reply:
    """From a chat or plain completion. Raises StackError when it is neither."""
    try:
        choice = body["choices"][0]
        message = choice.get("message") or {}
        said = message.get("content") or choice.get("text") or ""
        thought = message.get("reasoning") or message.get("reasoning_content") or ""
        tokens = int(body["usage"]["completion_tokens"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise StackError("found an answer without choices or usage; wanted a completion") from error
    cut = choice.get("finish_reason") == "length"
    text = " ".join(str(said or thought).split())
    return Reply(text, tokens, seconds, reasons=cut and _is_thinking(str(said), bool(thought)))


def _is_thinking(said: str, thought: bool) -> bool:
    """Without REASONING_PARSER the thoughts stand in the answer, between tags."""
    return (thought and not said) or ("<think>" in said and "</think>" not in said)


def parse_vectors(body: Mapping[str, Any], seconds: float) -> Reply:
    """From the embeddings of two sentences. Raises StackError for what no model computes."""
    try:
        one, two = ([float(x) for x in row["embedding"]] for row in body["data"])
        tokens = int(body["usage"]["prompt_tokens"])
    except (KeyError, TypeError, ValueError) as error:
        raise StackError(
            "found no embeddings or usage in the answer; wanted two vectors"
        ) from error
    wrong = _wrong_with(one, two)
    if wrong:
        raise problem(f"embeddings {wrong}", "two different vectors of finite numbers", LOGS)
    return Reply(f"{len(one)} finite numbers each", tokens, seconds, READ, "two sentences to embed")


def _wrong_with(one: list[float], two: list[float]) -> str:
    if len(one) != len(two) or not one:
        return f"of {len(one)} and {len(two)} numbers"
    if not all(map(math.isfinite, one + two)):
        return "with numbers that are not finite"
    if not any(one) or not any(two):
        return "of zeros alone"
    return "that are equal for different sentences" if one == two else ""


_BOUNDS = {"temperature": 0, "max_tokens": 64}
_CHAT = {"messages": [{"role": "user", "content": QUESTION}], **_BOUNDS}
_PLAIN = {"prompt": f"{QUESTION} The capital of France is", **_BOUNDS}
KINDS: tuple[tuple[str, Mapping[str, Any], Callable[[Mapping[str, Any], float], Reply]], ...] = (
    ("/v1/chat/completions", _CHAT, parse),
    ("/v1/completions", _PLAIN, parse),  # a model without a chat template
    ("/v1/embeddings", {"input": [QUESTION, OTHER]}, parse_vectors),
)


def judge(reply: Reply, model: str) -> str:
    """A warning in words, or nothing. Raises StackError for an answer that a working engine does
    not give."""
    if reply.tokens < 1:
        raise StackError(f"found an answer of no tokens; wanted some; fix: {LOGS}")
    if reply.counter != GENERATED:
        return ""
    if KNOWS_PARIS.search(model) and "paris" not in reply.text.lower() and not reply.reasons:
        raise problem(f"{model} answering {reply.text[:80]!r} to {QUESTION!r}", "Paris",
                      f"the engine computes wrongly: {LOGS}")  # fmt: skip
    what = garbage(reply.text)
    if not what:
        return ""
    return f"the answer is {what}, as of a GPU that computes wrongly or broken weights; see {LOGS}"


def garbage(text: str) -> str:
    """What an engine says that computes nonsense: NaN logits, for one, give token 0 for ever,
    which is "!" in many vocabularies. Empty for text that may be an answer."""
    words, letters = text.split(), "".join(text.split())
    if not letters:
        return "no text at all"
    # An answer that was cut off may end amid a character.
    if "\ufffd" in letters.rstrip("\ufffd") or not letters.strip("\ufffd"):
        return "in part no characters (U+FFFD)"
    if len(letters) >= 8 and len(set(letters)) == 1:
        return f"{letters[0]!r} over and over"
    if len(words) >= 8 and len(set(words)) == 1:
        return f"{words[0][:40]!r} over and over"
    return ""


def counted(url: str, before: Mapping[str, Any], reply: Reply) -> str:
    """Whether the engine's own counter rose with the answer since /status said `before`, in words
    for the last screen."""
    start = count(before, reply.counter)
    if start is None:
        return "engine's counter not readable"
    deadline = time.monotonic() + COUNTED_WITHIN_S
    rise = 0
    while time.monotonic() < deadline:
        rise = (count(http.get(url, "/status").body, reply.counter) or 0) - start
        if rise >= reply.tokens:
            break
        time.sleep(0.3)
    if rise < reply.tokens:
        raise problem(f"an answer of {reply.tokens} tokens and an engine that counted"
                      f" {rise}", "the same number", "scripts/stack logs vllm")  # fmt: skip
    return "counted by the engine" if rise == reply.tokens else "amid other requests"


def generated(status: Mapping[str, Any]) -> int | None:
    """vLLM's vllm:generation_tokens_total as the launcher read it."""
    return count(status, GENERATED)


def count(status: Mapping[str, Any], counter: str) -> int | None:
    value = status.get(counter)
    return int(value) if isinstance(value, int | float) else None
