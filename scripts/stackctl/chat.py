"""Talk to the stack in the terminal; answers appear as they are generated."""

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stackctl import http as calls
from stackctl.console import Console
from stackctl.errors import StackError

TIMEOUT_S = 600.0
HELP = (
    "Talk to the model. /new starts over, /help says this, Ctrl-C ends an answer, Ctrl-D the chat."
)
PATH = "/v1/chat/completions"
Message = dict[str, str]


def deltas(lines: Iterable[str]) -> Iterator[str]:
    """Text pieces of an OpenAI chat stream. Raises StackError at an error event."""
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise StackError(f"the stream ended: {event['error'].get('message', event['error'])}")
        for choice in event.get("choices", []):
            delta = choice.get("delta") or {}
            yield delta.get("content") or delta.get("reasoning") or ""


@dataclass(frozen=True)
class Chat:
    """Where to ask and with what: `options` are fields of the request (temperature, …)."""

    url: str
    key: str | None
    options: Mapping[str, object]


def answer(chat: Chat, history: list[Message], console: Console) -> str:
    """Stream one answer to the console; returns its text. Raises StackError."""
    body = {"messages": history, "stream": True, **chat.options}
    pieces: list[str] = []
    try:
        with calls.event_stream(chat.url, PATH, body, chat.key, TIMEOUT_S) as (code, lines):
            if code != 200:
                raise StackError(_refusal(code, "".join(lines)))
            for piece in deltas(lines):
                pieces.append(piece)
                console.write(piece)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise StackError(
            f"found no answer from {chat.url}; wanted a running stack; fix: make up"
        ) from error
    console.line()
    return "".join(pieces)


def _refusal(code: int, text: str) -> str:
    try:
        return f"{code}: {json.loads(text)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{code}: {text[:200]}"


def converse(chat: Chat, console: Console) -> None:
    """Ask and answer until the input ends (Ctrl-D). /new forgets what was said; Ctrl-C ends an
    answer, not the conversation."""
    console.line(HELP)
    history: list[Message] = []
    while True:
        try:
            text = input("you> ").strip()
        except EOFError:
            console.line()
            return
        if text == "/new":
            history.clear()
        elif text.startswith("/"):
            console.line(HELP)
        elif text:
            _turn(chat, history, text, console)


def _turn(chat: Chat, history: list[Message], text: str, console: Console) -> None:
    asked: list[Message] = [*history, {"role": "user", "content": text}]
    try:
        reply = answer(chat, asked, console)
    except KeyboardInterrupt:
        console.line(" (stopped)")
        return
    history[:] = [*asked, {"role": "assistant", "content": reply}]
