"""The official Python package: the Responses API."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import stack
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response, ResponseCompletedEvent

TOOL = {
    "type": "function",
    "name": stack.TOOL,
    "description": stack.TOOL_ABOUT,
    "parameters": stack.CITY_SCHEMA,
    "strict": True,
}
NAMED = {"type": "function", "name": stack.TOOL}


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{stack.URL}/v1", api_key=stack.KEY, timeout=stack.TIMEOUT_S, max_retries=0
    ) as openai:
        yield openai


def ask(client: OpenAI, question: object, **options: object) -> Response:
    words = {"max_output_tokens": 60, "temperature": 0, **options}
    return client.responses.create(model=stack.MODEL, input=question, **words)


def test_answer(client: OpenAI) -> None:
    answer = ask(client, stack.QUESTION)
    assert "Paris" in answer.output_text
    assert answer.usage is not None
    assert answer.usage.output_tokens > 0


def test_a_stream_is_the_answer_in_pieces(client: OpenAI) -> None:
    whole = ask(client, stack.QUESTION)
    events = list(ask(client, stack.QUESTION, stream=True))
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole.output_text
    assert len(pieces) > 5
    assert isinstance(events[-1], ResponseCompletedEvent)
    assert events[-1].response.usage == whole.usage


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
def test_a_forced_tool_and_its_result(client: OpenAI, choice: object) -> None:
    question = {"role": "user", "content": stack.WEATHER}
    first = ask(client, [question], tools=[TOOL], tool_choice=choice)
    [call] = first.output
    assert call.type == "function_call"
    assert call.name == stack.TOOL
    assert stack.fits(json.loads(call.arguments))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    turns = [question, call.model_dump(exclude_none=True), result]
    second = ask(client, turns, tools=[TOOL], max_output_tokens=16)
    assert second.output_text


def test_structured_output(client: OpenAI) -> None:
    form = {"type": "json_schema", "name": "trip", "schema": stack.CITY_SCHEMA, "strict": True}
    answer = ask(client, stack.WEATHER, text={"format": form})
    assert stack.fits(json.loads(answer.output_text))


def test_a_picture_is_refused(client: OpenAI) -> None:
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": stack.PIXEL_URL, "detail": "auto"},
    ]
    with pytest.raises(BadRequestError, match="not a multimodal model"):
        ask(client, [{"role": "user", "content": parts}])


def test_stored_responses_are_refused(client: OpenAI) -> None:
    """They would belong to everybody: the stack keeps none."""
    with pytest.raises(NotFoundError):
        client.responses.retrieve("resp_of_nobody")


def test_a_stream_that_is_closed_frees_the_engine(client: OpenAI) -> None:
    name = stack.new_id()
    events = ask(
        client,
        stack.ENDLESS,
        stream=True,
        max_output_tokens=stack.ENDLESS_TOKENS,
        extra_body=stack.IGNORE_EOS,
        extra_headers={"x-request-id": name},
    )
    next(events)
    stack.wait_until_running()
    events.close()
    stack.assert_freed(name)


def test_a_wrong_key(client: OpenAI) -> None:
    with pytest.raises(AuthenticationError, match="not valid"):
        ask(client.with_options(api_key="sk-nobody-has-this-one"), stack.QUESTION)


def test_an_unknown_model(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        client.responses.create(model="nothing", input=stack.QUESTION)
