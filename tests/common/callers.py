"""Clients of a stack under change: in a loop, and arriving at a steady rate whatever comes back.

Every answer is judged whole: status 200, text, and a stream's finish reason and [DONE].
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field

LIMIT_S = 300.0


@dataclass(frozen=True)
class Seen:
    """One request: what model answered, how long it took in seconds, and what was wrong."""

    model: str
    seconds: float
    wrong: str = ""


@dataclass
class Callers:
    """`loops` clients one request after the other, and one request each `every_s` seconds; every
    second one streams."""

    port: int
    key: str
    loops: int = 8
    every_s: float = 0.5
    tokens: int = 16
    seen: list[Seen] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Callers:
        for number in range(self.loops):
            self._start(self._loop, number)
        self._start(self._arrive)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        while self._threads:
            self._threads.pop().join(LIMIT_S)

    @property
    def failed(self) -> list[Seen]:
        return [each for each in self.seen if each.wrong]

    @property
    def models(self) -> set[str]:
        return {each.model for each in self.seen if not each.wrong}

    @property
    def longest_s(self) -> float:
        return max(each.seconds for each in self.seen)

    def once(self, *, stream: bool) -> Seen:
        began = time.monotonic()
        try:
            model, wrong = self._ask(stream)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            model, wrong = "", f"{type(error).__name__}: {error}"
        return Seen(model, time.monotonic() - began, wrong)

    def _start(self, work: object, *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _loop(self, number: int) -> None:
        while not self._stop.is_set():
            self.seen.append(self.once(stream=number % 2 == 0))

    def _arrive(self) -> None:
        number = 0
        while not self._stop.wait(self.every_s):
            number += 1
            self._start(lambda at=number: self.seen.append(self.once(stream=at % 2 == 0)))

    def _ask(self, stream: bool) -> tuple[str, str]:
        body = {
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0, "max_tokens": self.tokens, "stream": stream,
        }  # fmt: skip
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            return "", f"{answer.status}: {text[:300]}"
        return _streamed(text) if stream else _whole(text)


def _whole(text: str) -> tuple[str, str]:
    told = json.loads(text)
    good = told["choices"][0]["message"]["content"] and told["choices"][0]["finish_reason"]
    return told["model"], "" if good else f"no whole answer: {text[:300]}"


def _streamed(text: str) -> tuple[str, str]:
    """The model, and what a stream lacks."""
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return "", f"a stream without its end: {text[-300:]}"
    chunks = [json.loads(each) for each in events[:-1]]
    choices = [each["choices"][0] for each in chunks if each["choices"]]
    ended = [each for each in choices if each.get("finish_reason")]
    said = "".join(each["delta"].get("content") or "" for each in choices)
    good = len(ended) == 1 and said
    return chunks[0]["model"], "" if good else f"no whole stream: {text[-300:]}"
