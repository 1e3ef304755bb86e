"""LlamaIndex's OpenAILike."""

from __future__ import annotations

import gc
from typing import Any, Literal

import openai
import pytest
import stack
from llama_index.core.base.llms.types import ImageBlock, TextBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field


class Trip(BaseModel):
    """A trip."""

    city: Literal["Paris", "Rome", "Berlin"]
    days: int = Field(ge=1, le=7)


def weather(city: str, days: int) -> str:
    """Weather of a city."""
    return f"{city}: sunny, 21 degrees, {days} days"


TOOL = FunctionTool.from_defaults(weather, name=stack.TOOL, fn_schema=Trip)
QUESTION = [ChatMessage(role="user", content=stack.QUESTION)]
WEATHER = ChatMessage(role="user", content=stack.WEATHER)


def chat(**options: object) -> OpenAILike:
    words: dict[str, Any] = {
        "model": stack.MODEL,
        "api_base": f"{stack.URL}/v1",
        "api_key": stack.KEY,
        "is_chat_model": True,
        "is_function_calling_model": True,
        "context_window": 8192,
        "temperature": 0,
        "max_tokens": 60,
        "timeout": stack.TIMEOUT_S,
        "max_retries": 0,
    }
    return OpenAILike(**{**words, **options})


def test_chat() -> None:
    assert "Paris" in str(chat().chat(QUESTION).message.content)
    assert "Paris" in str(chat().complete(stack.QUESTION))


def test_a_stream_is_the_answer_in_pieces() -> None:
    whole = chat().chat(QUESTION)
    chunks = list(chat().stream_chat(QUESTION))
    assert "".join(chunk.delta or "" for chunk in chunks) == whole.message.content
    assert len(chunks) > 5


def test_usage_comes_when_it_is_asked_for() -> None:
    asked = {"stream_options": {"include_usage": True}}
    last = list(chat(additional_kwargs=asked).stream_chat(QUESTION))[-1]
    assert last.raw.usage.completion_tokens > 0
    silent = list(chat().stream_chat(QUESTION))
    assert [chunk.raw.usage for chunk in silent if chunk.raw.usage] == []


@pytest.mark.parametrize("choice", [stack.TOOL, "required"])
def test_a_forced_tool_and_its_result(choice: str) -> None:
    model = chat(strict=True)
    first = model.chat_with_tools([TOOL], chat_history=[WEATHER], tool_choice=choice)
    [call] = model.get_tool_calls_from_response(first)
    assert call.tool_name == stack.TOOL
    assert stack.fits(call.tool_kwargs)
    result = ChatMessage(
        role="tool",
        content=str(TOOL(**call.tool_kwargs)),
        additional_kwargs={"tool_call_id": call.tool_id},
    )
    assert chat(max_tokens=16).chat([WEATHER, first.message, result]).message.content


def test_structured_output() -> None:
    asked = chat(should_use_structured_outputs=True)
    trip = asked.structured_predict(Trip, PromptTemplate(stack.WEATHER))
    assert stack.fits(trip.model_dump())


def test_a_picture_is_refused() -> None:
    picture = ImageBlock(image=stack.PIXEL.encode(), image_mimetype="image/png")
    message = ChatMessage(role="user", blocks=[TextBlock(text="What is this?"), picture])
    with pytest.raises(openai.BadRequestError, match="not a multimodal model"):
        chat().chat([message])


def test_a_stream_that_is_closed_frees_the_engine() -> None:
    name = stack.new_id()
    model = chat(
        max_tokens=stack.ENDLESS_TOKENS,
        additional_kwargs={"extra_body": stack.IGNORE_EOS},
        default_headers={"x-request-id": name},
    )
    chunks = model.stream_chat([ChatMessage(role="user", content=stack.ENDLESS)])
    next(chunks)
    stack.wait_until_running()
    chunks.close()
    gc.collect()  # the package leaves its connection in a reference cycle
    stack.assert_freed(name)


def test_a_wrong_key() -> None:
    with pytest.raises(openai.AuthenticationError, match="not valid"):
        chat(api_key="sk-nobody-has-this-one").chat(QUESTION)


def test_an_unknown_model() -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        chat(model="nothing").chat(QUESTION)
