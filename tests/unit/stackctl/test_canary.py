"""The canary: which question a model gets, what its answer says about the engine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from stackctl import canary
from stackctl.errors import StackError

NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens
Answers = dict[str, tuple[int, dict[str, Any]]]  # path -> status, body
PARIS = {"choices": [{"message": {"content": "The capital\nis Paris."}, "finish_reason": "stop"}],
         "usage": {"completion_tokens": 8}}  # fmt: skip
# The gateway's words for vLLM's 404, and vLLM's own two.
NO_ROUTE = (404, {"error": {"message": "Not Found: the model that is served has no such route."}})
NO_TEMPLATE = (400, {"error": {"message": "As of transformers v4.44, default chat template is no"}})


def vectors(*rows: list[float]) -> dict[str, Any]:
    return {"data": [{"embedding": row} for row in rows], "usage": {"prompt_tokens": 14}}


@contextmanager
def stack(answers: Answers) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """An nginx that answers from a table, and the bodies it was sent."""
    asked: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body))
            self._send(*answers[self.path])

        def do_GET(self) -> None:
            self._send(*answers[self.path])

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def ask(answers: Answers, model: str | None = None) -> tuple[canary.Reply | str, list[str]]:
    with stack(answers) as (url, asked):
        reply = canary.ask(url, "sk-x", model)
        assert all(body.get("model") == model for _, body in asked)
        return reply, [path for path, _ in asked]


def test_a_model_that_chats() -> None:
    reply, paths = ask({"/v1/chat/completions": (200, PARIS)}, "M")
    assert isinstance(reply, canary.Reply)
    assert (reply.text, reply.tokens, paths) == (
        "The capital is Paris.", 8, ["/v1/chat/completions"],
    )  # fmt: skip
    assert canary.judge(reply, "SmolLM2-135M-Instruct") == ""


def test_a_model_without_a_chat_template_completes() -> None:
    plain = {"choices": [{"text": " Paris."}], "usage": {"completion_tokens": 2}}
    reply, paths = ask({"/v1/chat/completions": NO_TEMPLATE, "/v1/completions": (200, plain)})
    assert isinstance(reply, canary.Reply)
    assert reply.text == "Paris."
    assert len(paths) == 2


@pytest.mark.parametrize("refusal", [NO_ROUTE, (501, {"error": {"message": "does not support"}})])
def test_a_model_that_embeds(refusal: tuple[int, dict[str, Any]]) -> None:
    answers = {"/v1/chat/completions": refusal, "/v1/completions": refusal}
    two = vectors([0.6, 0.8], [0.8, -0.6])
    reply, paths = ask({**answers, "/v1/embeddings": (200, two)})
    assert isinstance(reply, canary.Reply)
    assert (reply.text, reply.tokens, reply.counter) == (
        "2 finite numbers each", 14, "prompt_tokens_total",
    )  # fmt: skip
    assert canary.judge(reply, "meta-llama/Llama-3.1-8B-Instruct") == ""
    assert len(paths) == 3


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (([1.0, math.nan], [1.0, 2.0]), "not finite"),
        (([1.0, math.inf], [1.0, 2.0]), "not finite"),
        (([0.0, 0.0], [1.0, 2.0]), "zeros alone"),
        (([1.0, 2.0], [1.0, 2.0]), "equal for different sentences"),
        (([1.0], [1.0, 2.0]), "of 1 and 2 numbers"),
        (([], []), "of 0 and 0 numbers"),
        (([1.0],), "found no embeddings"),
    ],
)
def test_vectors_that_no_model_computes(rows: tuple[list[float], ...], words: str) -> None:
    with pytest.raises(StackError, match=words):
        canary.parse_vectors(vectors(*rows), 1.0)


def test_what_cannot_be_asked_is_said() -> None:
    paths = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
    assert ask(dict.fromkeys(paths, NO_ROUTE))[0] == (
        "left out: this model neither chats, completes nor embeds"
    )
    limited = (429, {"error": {"message": "1 request a minute"}})
    assert ask({"/v1/chat/completions": limited})[0] == (
        "left out: a limit of the key refused it (1 request a minute)"
    )


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_a_refusal_fails_the_start(status: int) -> None:
    answers: Answers = {"/v1/chat/completions": (status, {"error": {"message": "no model x"}})}
    with pytest.raises(StackError, match=f"answered with {status}: no model x"):
        ask(answers)
    with pytest.raises(StackError, match=r"answered with 0: .*refused"):
        canary.ask(NOBODY, "sk-x")


def reply_of(text: str, **message: str) -> canary.Reply:
    choice = {"message": {"content": text or None, **message}, "finish_reason": "length"}
    return canary.parse({"choices": [choice], "usage": {"completion_tokens": 64}}, 2.0)


def test_a_known_model_says_paris() -> None:
    wrong = reply_of("The capital is Rome.")
    assert wrong.tokens_per_second == 32.0
    assert canary.judge(wrong, "some/unknown-model") == ""
    with pytest.raises(StackError, match="Paris"):
        canary.judge(wrong, "meta-llama/Llama-3.1-8B-Instruct")
    with pytest.raises(StackError, match="no tokens"):
        canary.judge(canary.Reply("Paris", 0, 1.0), "x")
    with pytest.raises(StackError, match="without choices or usage"):
        canary.parse({"choices": []}, 1.0)


@pytest.mark.parametrize(
    "reply",
    [
        reply_of("", reasoning="The user asks for a capital. I should"),
        reply_of("", reasoning_content="The user asks for a capital. I should"),
        reply_of("<think> The user asks for a capital. I should"),
    ],
)
def test_a_model_cut_off_while_it_reasons_is_no_wrong_one(reply: canary.Reply) -> None:
    assert reply.text
    assert canary.judge(reply, "openai/gpt-oss-20b") == ""


def test_reasoning_that_ended_is_judged_by_its_answer() -> None:
    with pytest.raises(StackError, match="Paris"):
        canary.judge(reply_of("Rome.", reasoning="France has Paris"), "openai/gpt-oss-20b")
    with pytest.raises(StackError, match="Paris"):
        canary.judge(reply_of("<think> hm </think> Rome."), "openai/gpt-oss-20b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("!!!!!!!!!!!!!!!!", "'!' over and over"),
        ("! ! ! ! ! ! ! ! !", "'!' over and over"),
        ("foo " * 20, "'foo' over and over"),
        ("a\ufffd\ufffdb c", "no characters"),
        ("\ufffd\ufffd\ufffd\ufffd", "no characters"),
        ("", "no text at all"),
    ],
)
def test_garbage_of_an_unknown_model_is_a_warning(text: str, words: str) -> None:
    assert words in canary.judge(reply_of(text), "some/unknown-model")


@pytest.mark.parametrize("text", ["Paris", "no no no", "!!!", "Paris \ufffd", "パリ", "44444"])
def test_short_or_foreign_answers_are_no_garbage(text: str) -> None:
    assert canary.garbage(text) == ""


def test_tokens_are_held_to_the_engines_counter() -> None:
    with stack({"/status": (200, {"generation_tokens_total": 108})}) as (url, _):
        reply = canary.Reply("Paris", 8, 1.0)
        before = {"generation_tokens_total": 100}
        assert canary.counted(url, before, reply) == "counted by the engine"
        assert canary.counted(url, {"generation_tokens_total": 90}, reply) == "amid other requests"
        assert canary.counted(url, {}, reply) == "engine's counter not readable"


def test_an_engine_that_counted_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "COUNTED_WITHIN_S", 0.1)
    with (
        stack({"/status": (200, {"generation_tokens_total": 103})}) as (url, _),
        pytest.raises(StackError, match="8 tokens and an engine that counted 3"),
    ):
        canary.counted(url, {"generation_tokens_total": 100}, canary.Reply("Paris", 8, 1.0))
