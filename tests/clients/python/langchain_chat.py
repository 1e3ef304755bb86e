"""LangChain's ChatOpenAI."""

from __future__ import annotations

from typing import Any

import openai
import pytest
import stack
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": stack.TOOL,
        "description": stack.TOOL_ABOUT,
        "parameters": stack.CITY_SCHEMA,
        "strict": True,
    },
}


def chat(**options: object) -> ChatOpenAI:
    words: dict[str, Any] = {
        "model": stack.MODEL,
        "base_url": f"{stack.URL}/v1",
        "api_key": stack.KEY,
        "temperature": 0,
        "max_tokens": 60,
        "timeout": stack.TIMEOUT_S,
        "max_retries": 0,
    }
    return ChatOpenAI(**{**words, **options})


def joined(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


def test_chat() -> None:
    answer = chat().invoke(stack.QUESTION)
    assert "Paris" in str(answer.content)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_is_the_answer_in_pieces(usage: bool) -> None:
    whole = chat().invoke(stack.QUESTION)
    chunks = list(chat(stream_usage=usage).stream(stack.QUESTION))
    assert joined(chunks).content == whole.content
    assert len(chunks) > 5
    assert joined(chunks).usage_metadata == (whole.usage_metadata if usage else None)


@pytest.mark.parametrize("choice", [stack.TOOL, "any"])
def test_a_forced_tool_and_its_result(choice: str) -> None:
    question = HumanMessage(stack.WEATHER)
    forced = chat().bind_tools([TOOL], tool_choice=choice)
    first = forced.invoke([question])
    [call] = first.tool_calls
    assert call["name"] == stack.TOOL
    assert stack.fits(call["args"])
    result = ToolMessage("sunny, 21 degrees", tool_call_id=call["id"])
    second = chat(max_tokens=16).bind_tools([TOOL]).invoke([question, first, result])
    assert second.content


def test_structured_output() -> None:
    schema = {"title": "trip", "description": "A trip", **stack.CITY_SCHEMA}
    asked = chat().with_structured_output(schema, method="json_schema", strict=True)
    assert stack.fits(asked.invoke(stack.WEATHER))


def test_a_picture_is_refused() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": stack.PIXEL_URL}},
    ]
    with pytest.raises(openai.BadRequestError, match="not a multimodal model"):
        chat().invoke([HumanMessage(parts)])


def test_a_stream_that_is_closed_frees_the_engine() -> None:
    name = stack.new_id()
    model = chat(
        max_tokens=stack.ENDLESS_TOKENS,
        extra_body=stack.IGNORE_EOS,
        default_headers={"x-request-id": name},
    )
    chunks = model.stream(stack.ENDLESS)
    next(chunks)
    stack.wait_until_running()
    chunks.close()
    stack.assert_freed(name)


def test_a_wrong_key() -> None:
    with pytest.raises(openai.AuthenticationError, match="not valid"):
        chat(api_key="sk-nobody-has-this-one").invoke(stack.QUESTION)


def test_an_unknown_model() -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        chat(model="nothing").invoke(stack.QUESTION)
