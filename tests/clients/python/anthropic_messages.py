"""Anthropic's Python package: the Messages API, with x-api-key and errors of its own form."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import stack
from anthropic import Anthropic, AuthenticationError, BadRequestError, NotFoundError
from anthropic.types import Message, ToolUseBlock

TOOL = {
    "name": stack.TOOL,
    "description": stack.TOOL_ABOUT,
    "input_schema": stack.CITY_SCHEMA,
    "strict": True,
}
CHOICES = [{"type": "tool", "name": stack.TOOL}, {"type": "any"}]


@pytest.fixture(scope="module")
def client() -> Iterator[Anthropic]:
    with Anthropic(
        base_url=stack.URL, api_key=stack.KEY, timeout=stack.TIMEOUT_S, max_retries=0
    ) as anthropic:
        yield anthropic


def options(text: str, **more: object) -> dict[str, object]:
    """The package has no temperature any more; the engine still takes one."""
    return {
        "model": stack.MODEL,
        "max_tokens": 60,
        "messages": [{"role": "user", "content": text}],
        "extra_body": {"temperature": 0},
        **more,
    }


def ask(client: Anthropic, text: str, **more: object) -> Message:
    return client.messages.create(**options(text, **more))


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def assert_own_form(error: BadRequestError | NotFoundError | AuthenticationError) -> None:
    """Errors under /v1/messages have Anthropic's form, whoever made them."""
    assert error.response.headers["content-type"] == "application/json"
    body = error.response.json()
    assert body["type"] == "error"
    assert body["error"].keys() >= {"type", "message"}


def test_message(client: Anthropic) -> None:
    answer = ask(client, stack.QUESTION)
    assert "Paris" in text_of(answer)
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens > 0


def test_a_stream_is_the_answer_in_pieces(client: Anthropic) -> None:
    whole = ask(client, stack.QUESTION)
    with client.messages.stream(**options(stack.QUESTION)) as events:
        pieces = list(events.text_stream)
        last = events.get_final_message()
    assert "".join(pieces) == text_of(whole) == text_of(last)
    assert len(pieces) > 5
    assert last.stop_reason == whole.stop_reason
    assert last.usage.output_tokens == whole.usage.output_tokens


def test_tokens_are_counted(client: Anthropic) -> None:
    asked = {"model": stack.MODEL, "messages": options(stack.QUESTION)["messages"]}
    counted = client.messages.count_tokens(**asked)
    assert counted.input_tokens == ask(client, stack.QUESTION).usage.input_tokens


@pytest.mark.parametrize("choice", CHOICES, ids=["tool", "any"])
def test_a_forced_tool_and_its_result(client: Anthropic, choice: object) -> None:
    first = ask(client, stack.WEATHER, tools=[TOOL], tool_choice=choice)
    [call] = first.content
    assert isinstance(call, ToolUseBlock)
    assert first.stop_reason == "tool_use"
    assert call.name == stack.TOOL
    assert stack.fits(call.input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 21 degrees"}
    history = [
        {"role": "user", "content": stack.WEATHER},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = ask(client, "", messages=history, tools=[TOOL], max_tokens=16)
    assert text_of(second)


def test_a_tool_call_streams(client: Anthropic) -> None:
    asked = options(stack.WEATHER, tools=[TOOL], tool_choice=CHOICES[0])
    with client.messages.stream(**asked) as events:
        [call] = events.get_final_message().content
    assert isinstance(call, ToolUseBlock)
    assert stack.fits(call.input)


def test_structured_output(client: Anthropic) -> None:
    form = {"type": "json_schema", "schema": stack.CITY_SCHEMA}
    answer = ask(client, stack.WEATHER, output_config={"format": form})
    assert stack.fits(json.loads(text_of(answer)))


def test_a_picture_is_refused(client: Anthropic) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": stack.PIXEL}
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
    with pytest.raises(BadRequestError, match="not a multimodal model") as caught:
        ask(client, "", messages=[{"role": "user", "content": parts}])
    assert_own_form(caught.value)


def test_a_stream_that_is_closed_frees_the_engine(client: Anthropic) -> None:
    """This API has no ignore_eos; a form that takes long to fill does the same."""
    name = stack.new_id()
    long = {"type": "array", "items": {"enum": ["one", "two"]}, "minItems": stack.ENDLESS_TOKENS}
    asked = options(
        stack.ENDLESS,
        max_tokens=stack.ENDLESS_TOKENS,
        output_config={"format": {"type": "json_schema", "schema": long}},
        extra_headers={"x-request-id": name},
    )
    with client.messages.stream(**asked) as events:
        next(iter(events.text_stream))
        stack.wait_until_running()
    stack.assert_freed(name)


def test_a_wrong_key(client: Anthropic) -> None:
    with pytest.raises(AuthenticationError, match="not valid") as caught:
        ask(client.with_options(api_key="sk-nobody-has-this-one"), stack.QUESTION)
    assert_own_form(caught.value)


def test_an_unknown_model(client: Anthropic) -> None:
    with pytest.raises(NotFoundError, match="does not exist") as caught:
        ask(client, stack.QUESTION, model="nothing")
    assert_own_form(caught.value)


def test_what_the_engine_refuses_has_the_same_form(client: Anthropic) -> None:
    with pytest.raises(BadRequestError, match="max_tokens") as caught:
        ask(client, stack.QUESTION, max_tokens=-1)
    assert_own_form(caught.value)
