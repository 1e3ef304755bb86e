"""The soak's clients: each picks one kind of request after the other, for as long as it is told.

Every kind knows how it has to end; an end of another kind is counted under its name.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bench.gateway.load import CHAT, Target, chat_body

ANSWER_S = 60.0
# A reader that stops for so long fills what the sockets hold, and the gateway has to stop reading.
SLOW_PAUSE_S = 3.0

DONE = b"data: [DONE]\n\n"


@dataclass
class Crowd:
    """`ended`: how many of each kind ended as they should; `wrong`: those that did not."""

    target: Target
    seed: int
    ended: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    async def run(self, clients: int, stop: asyncio.Event) -> None:
        """Until `stop` is set; what is under way is finished first."""
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                dice = random.Random(self.seed + number)  # noqa: S311 - a repeatable mix, no secret
                group.create_task(self._client(dice, stop))

    async def _client(self, dice: random.Random, stop: asyncio.Event) -> None:
        names = list(KINDS)
        weights = [weight for weight, _ in KINDS.values()]
        while not stop.is_set():
            name = dice.choices(names, weights)[0]
            try:
                async with asyncio.timeout(ANSWER_S):
                    good = await KINDS[name][1](self.target, dice)
            except (OSError, EOFError, TimeoutError):
                good = False
            (self.ended if good else self.wrong)[name] += 1
            await asyncio.sleep(dice.uniform(0.02, 0.2))


class Call:
    """One request on a connection of its own. Use as a context manager."""

    def __init__(self, target: Target, body: bytes, key: str | None = None) -> None:
        self._target = target
        self._body = body
        self._key = target.key if key is None else key

    async def __aenter__(self) -> Call:
        # A small buffer: a client that does not read is felt at once.
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._target.port, limit=4096
        )
        head = (
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self._key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(self._body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.writer.write(head.encode() + self._body)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def status(self) -> int:
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])

    async def rest(self, pause_s: float = 0.0) -> bytes:
        """The end of the answer, the last 200 bytes; pauses once after the first bytes."""
        tail = await self.reader.read(4096)
        await asyncio.sleep(pause_s)
        while data := await self.reader.read(65_536):
            tail = (tail + data)[-200:]
        return tail


async def stream(target: Target, dice: random.Random) -> bool:
    body = chat_body(stream=True, max_tokens=dice.randint(5, 150))
    async with Call(target, body) as call:
        return await call.status() == 200 and DONE in await call.rest()


async def unary(target: Target, dice: random.Random) -> bool:
    async with Call(target, chat_body("x" * dice.randint(10, 20_000))) as call:
        return await call.status() == 200 and b"Paris." in await call.rest()


async def leave_early(target: Target, dice: random.Random) -> bool:
    """Goes away before the engine said a word."""
    async with Call(target, chat_body(stream=True, user="hold")):
        await asyncio.sleep(dice.uniform(0, 0.5))
    return True


async def leave_midway(target: Target, dice: random.Random) -> bool:
    async with Call(target, chat_body(stream=True, max_tokens=500)) as call:
        good = await call.status() == 200
        await asyncio.sleep(dice.uniform(0, 1))
    return good


async def slow_reader(target: Target, dice: random.Random) -> bool:
    """Megabytes, not read for a while; then all of it has to be there."""
    body = chat_body(stream=True, user="flood", max_tokens=dice.randint(50, 250))
    async with Call(target, body) as call:
        return await call.status() == 200 and DONE in await call.rest(SLOW_PAUSE_S)


async def engine_resets(target: Target, dice: random.Random) -> bool:
    """The stream has to end with an error event and no [DONE]."""
    body = chat_body(stream=True, user="reset", max_tokens=dice.randint(5, 50))
    async with Call(target, body) as call:
        good = await call.status() == 200
        end = await call.rest()
    return good and b'"error"' in end and DONE not in end


async def engine_fails(target: Target, dice: random.Random) -> bool:
    async with Call(target, chat_body(user="fail")) as call:
        return await call.status() == 500 and b'"error"' in await call.rest()


async def bad_key(target: Target, dice: random.Random) -> bool:
    async with Call(target, chat_body(), key="sk-wrong-0123456789") as call:
        return await call.status() == 401


async def bad_body(target: Target, dice: random.Random) -> bool:
    """Not JSON: the gateway or the engine says so."""
    async with Call(target, b'{"model": "m", "stream": tr') as call:
        return await call.status() == 400


Kind = Callable[[Target, random.Random], Awaitable[bool]]

KINDS: dict[str, tuple[int, Kind]] = {
    "stream": (40, stream),
    "unary": (30, unary),
    "leave midway": (8, leave_midway),
    "leave early": (6, leave_early),
    "slow reader": (3, slow_reader),
    "engine resets": (4, engine_resets),
    "engine fails": (4, engine_fails),
    "bad key": (3, bad_key),
    "bad body": (2, bad_body),
}
