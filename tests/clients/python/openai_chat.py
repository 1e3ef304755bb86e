"""The official Python package: chat completions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
import stack
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

BASE = f"{stack.URL}/v1"
TOOL = {
    "type": "function",
    "function": {
        "name": stack.TOOL,
        "description": stack.TOOL_ABOUT,
        "parameters": stack.CITY_SCHEMA,
        "strict": True,
    },
}
NAMED = {"type": "function", "function": {"name": stack.TOOL}}


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    with OpenAI(base_url=BASE, api_key=stack.KEY, timeout=stack.TIMEOUT_S, max_retries=0) as openai:
        yield openai


def user(text: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]


def ask(client: OpenAI, text: str, **options: object) -> ChatCompletion:
    words = {"max_tokens": 60, "temperature": 0, **options}
    return client.chat.completions.create(model=stack.MODEL, messages=user(text), **words)


def stream(client: OpenAI, text: str, **options: object) -> list[ChatCompletionChunk]:
    return list(ask(client, text, stream=True, **options))


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_chat(client: OpenAI) -> None:
    answer = ask(client, stack.QUESTION)
    assert "Paris" in str(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


def test_models(client: OpenAI) -> None:
    names = {model.id for model in client.models.list()}
    assert names == {"default", "SmolLM2-135M-Instruct"}
    assert {client.models.retrieve(name).id for name in names} == names


def test_a_stream_is_the_answer_in_pieces(client: OpenAI) -> None:
    whole = ask(client, stack.QUESTION)
    chunks = stream(client, stack.QUESTION)
    assert text_of(chunks) == whole.choices[0].message.content
    assert len(chunks) > 5
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_usage_comes_when_it_is_asked_for(client: OpenAI) -> None:
    whole = ask(client, stack.QUESTION)
    chunks = stream(client, stack.QUESTION, stream_options={"include_usage": True})
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}])
def test_usage_stays_away_when_it_is_not(client: OpenAI, options: dict[str, object]) -> None:
    chunks = stream(client, stack.QUESTION, **options)
    assert [chunk.usage for chunk in chunks if chunk.usage] == []
    assert [chunk for chunk in chunks if not chunk.choices] == []


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
def test_a_forced_tool_and_its_result(client: OpenAI, choice: object) -> None:
    first = ask(client, stack.WEATHER, tools=[TOOL], tool_choice=choice)
    message = first.choices[0].message
    assert message.tool_calls is not None
    call = message.tool_calls[0]
    assert call.type == "function"
    assert call.function.name == stack.TOOL
    assert stack.fits(json.loads(call.function.arguments))
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}
    second = client.chat.completions.create(
        model=stack.MODEL,
        messages=[*user(stack.WEATHER), message, result],
        tools=[TOOL],
        temperature=0,
        max_tokens=16,
    )
    assert second.choices[0].message.content


def test_a_tool_call_streams(client: OpenAI) -> None:
    chunks = stream(client, stack.WEATHER, tools=[TOOL], tool_choice=NAMED)
    calls = [
        call.function
        for chunk in chunks
        for call in chunk.choices[0].delta.tool_calls or []
        if call.function
    ]
    assert "".join(call.name or "" for call in calls) == stack.TOOL
    assert stack.fits(json.loads("".join(call.arguments or "" for call in calls)))


def test_structured_output(client: OpenAI) -> None:
    schema = {"name": "trip", "schema": stack.CITY_SCHEMA, "strict": True}
    form = {"type": "json_schema", "json_schema": schema}
    answer = ask(client, stack.WEATHER, response_format=form)
    assert stack.fits(json.loads(str(answer.choices[0].message.content)))


def test_a_picture_is_refused(client: OpenAI) -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": stack.PIXEL_URL}},
    ]
    with pytest.raises(BadRequestError, match="not a multimodal model") as caught:
        client.chat.completions.create(
            model=stack.MODEL, messages=[{"role": "user", "content": parts}]
        )
    assert caught.value.response.headers["content-type"] == "application/json"


def test_a_stream_that_is_closed_frees_the_engine(client: OpenAI) -> None:
    name = stack.new_id()
    chunks = ask(
        client,
        stack.ENDLESS,
        stream=True,
        max_tokens=stack.ENDLESS_TOKENS,
        extra_body=stack.IGNORE_EOS,
        extra_headers={"x-request-id": name},
    )
    next(chunks)
    stack.wait_until_running()
    chunks.close()
    stack.assert_freed(name)


def test_a_cancelled_question_frees_the_engine() -> None:
    """No stream: not a byte of the answer has come when the client leaves."""
    name = stack.new_id()

    async def leave() -> None:
        async with AsyncOpenAI(base_url=BASE, api_key=stack.KEY, max_retries=0) as client:
            question = asyncio.ensure_future(
                client.chat.completions.create(
                    model=stack.MODEL,
                    messages=user(stack.ENDLESS),
                    temperature=0,
                    max_tokens=stack.ENDLESS_TOKENS,
                    extra_body=stack.IGNORE_EOS,
                    extra_headers={"x-request-id": name},
                )
            )
            await asyncio.to_thread(stack.wait_until_running)
            question.cancel()
            await asyncio.wait([question])
            assert question.cancelled()

    asyncio.run(leave())
    stack.assert_freed(name)


def test_a_wrong_key(client: OpenAI) -> None:
    with pytest.raises(AuthenticationError, match="not valid"):
        ask(client.with_options(api_key="sk-nobody-has-this-one"), stack.QUESTION)


def test_an_unknown_model(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        client.chat.completions.create(model="nothing", messages=user(stack.QUESTION))
    with pytest.raises(NotFoundError):
        client.models.retrieve("nothing")
