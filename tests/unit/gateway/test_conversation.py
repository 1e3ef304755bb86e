"""What the turns of a conversation share, in each API's body; two conversations do not."""

from __future__ import annotations

import json

import pytest

from gateway.routes.conversation import BEGINNING, conversation_of

SYSTEM = {"role": "system", "content": "You are terse."}
ASK = {"role": "user", "content": "Why is the sky blue? 🌍"}
REPLY = {"role": "assistant", "content": "Rayleigh."}
MORE = {"role": "user", "content": "And at night?"}


def of(**body: object) -> bytes:
    found = conversation_of(json.dumps(body).encode())
    assert len(found) in {0, 16}
    return found


def test_all_turns_of_a_chat_are_one_conversation() -> None:
    first = of(messages=[SYSTEM, ASK])
    assert first
    assert first == of(messages=[SYSTEM, ASK, REPLY, MORE], stream=True, model="m", temperature=1)
    assert first != of(messages=[SYSTEM, MORE])
    assert first != of(messages=[ASK])
    assert first != of(messages=[{**SYSTEM, "content": "You are verbose."}, ASK, REPLY, MORE])


def test_how_it_is_written_does_not_count() -> None:
    plain = json.dumps({"messages": [SYSTEM, ASK]}, ensure_ascii=False).encode()
    spaced = json.dumps({"a": 1, "messages": [dict(reversed(SYSTEM.items())), ASK]}, indent=2)
    assert conversation_of(plain) == conversation_of(spaced.encode()) == of(messages=[SYSTEM, ASK])


def test_marks_of_a_cache_do_not_count() -> None:
    """Anthropic's clients move them from turn to turn, and make a list of a text for them."""
    part = {"type": "text", "text": ASK["content"]}
    marked = {**part, "cache_control": {"type": "ephemeral"}}
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    plain = of(system="Be kind.", messages=[ASK])
    for content in ([part], [marked]):
        assert plain == of(
            system="Be kind.", messages=[{"role": "user", "content": content}, REPLY]
        )
    assert plain != of(system="Be brief.", messages=[ASK])
    seen = of(messages=[{"role": "user", "content": [part, image]}])
    held = {**image, "cache_control": {"type": "ephemeral"}}
    assert seen == of(messages=[{"role": "user", "content": [part, held]}, REPLY, MORE])
    assert seen != of(messages=[{"role": "user", "content": [part]}])


def test_turns_of_responses() -> None:
    """A first input may be a text, and is a message of the user in the next turn."""
    question = {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]}
    first = of(instructions="Be kind.", input="Why?")
    call = {"type": "function_call_output", "call_id": "c", "output": "4"}
    assert first == of(instructions="Be kind.", input=[question, call, MORE])
    assert first != of(input="Why?")


def test_a_prompt_that_grows_keeps_its_beginning() -> None:
    opening = "x" * BEGINNING
    assert of(prompt=opening + "first") == of(prompt=opening + "first, second")
    assert of(prompt="a" + opening) != of(prompt="b" + opening)
    assert of(prompt=list(range(1000))) == of(prompt=list(range(2000)))


def test_a_key_of_the_client_counts_before_all_else() -> None:
    assert of(prompt_cache_key="k", messages=[ASK]) == of(prompt_cache_key="k", messages=[MORE])
    assert of(prompt_cache_key="k", messages=[ASK]) != of(prompt_cache_key="l", messages=[ASK])
    assert of(prompt_cache_key="", messages=[ASK]) == of(messages=[ASK])


def test_what_comes_after_much_text_does_not_count_but_its_length_does() -> None:
    long = "x" * 100_000
    assert of(messages=[{"role": "user", "content": long + "a"}]) == of(
        messages=[{"role": "user", "content": long + "b"}]
    )
    assert of(messages=[{"role": "user", "content": long}]) != of(
        messages=[{"role": "user", "content": long + "b"}]
    )


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"",
        b"[]",
        b"not json",
        b'{"messages":[],"prompt":""}',
        b'{"messages":null}',
        b'{"messages":[NaN]}',
        b"[" * 300_000,
        b'{"messages":' + b"[" * 300_000,
        b'{"messages":[{"role":"user","content":' + b"[" * 300_000,
    ],
)
def test_what_says_nothing(body: bytes) -> None:
    assert conversation_of(body) == b""


@pytest.mark.parametrize(
    "messages",
    [
        [None, 1, "x", [], {}],
        [{"role": 7, "content": {"a": 1}}],
        [{"role": "user"}],
        [{"role": "user", "content": [None, 1, "x", [1], {"text": 5}, {"text": None}]}],
        {"role": "user"},
        "text",
        5,
    ],
)
def test_odd_messages_are_no_error(messages: object) -> None:
    assert of(messages=messages) == of(messages=messages)
