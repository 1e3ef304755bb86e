"""ASGI `send` and `receive` driven from callbacks, without a task.

A coroutine is only a function that can stop. `send(None)` runs it to its first real wait: the
server's `send` has none unless the client reads too slowly, so a piece that arrived from the
engine is in the client's socket buffer before the read callback returns. When it does wait, it
hands out the future it waits for, and we go on when that is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.types import Message, Receive, Send

Waited = asyncio.Future[Any]


def nothing() -> None:
    """A hook that nobody has taken."""


class Drive:
    """Runs one started coroutine to its end as its futures complete."""

    __slots__ = ("_coro", "_done")

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        waits_for: Waited,
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        self._coro: Coroutine[Any, Any, Any] | None = coro
        self._done = done
        self._follow(waits_for)

    def stop(self) -> None:
        """Give up: the coroutine's `finally` blocks run, `done` is not called."""
        if self._coro is not None:
            self._coro.close()
            self._coro = None

    def _follow(self, waits_for: Waited | None) -> None:
        if waits_for is None:  # a bare yield: go on in the next turn of the loop
            asyncio.get_running_loop().call_soon(self._step)
        else:
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self._step)

    def _step(self, _: Waited | None = None) -> None:
        if self._coro is None:
            return
        try:
            waits_for = self._coro.send(None)
        except StopIteration as stop:
            self._coro = None
            self._done(stop.value, None)
        except Exception as error:  # noqa: BLE001 - a callback has no caller; `done` passes it on
            self._coro = None
            self._done(None, error)
        else:
            self._follow(waits_for)


class Outbox:
    """Messages to one client, in order.

    `push` never blocks. While the client's transport is paused, `on_blocked` has been called and
    messages wait in a short list (the reader stops, so it holds what was already read);
    `on_free` follows. `closed` is true once the last message was taken by the server.
    """

    __slots__ = (
        "_backlog",
        "_drive",
        "_error",
        "_send",
        "_waiter",
        "closed",
        "on_blocked",
        "on_free",
    )

    def __init__(self, send: Send) -> None:
        self._send = send
        self._backlog: deque[Message] = deque()
        self._drive: Drive | None = None
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False
        self.on_blocked: Callable[[], None] = nothing
        self.on_free: Callable[[], None] = nothing

    def push(self, message: Message) -> None:
        """Send now, or in turn. An error of `send` surfaces in `drained`."""
        if self._blocked:
            self._backlog.append(message)
        elif self._error is None:
            self._start(message)

    @property
    def _blocked(self) -> bool:
        return self._drive is not None

    @property
    def _stuck(self) -> bool:
        return self._blocked or self._error is not None

    def body(self, data: bytes) -> None:
        self.push({"type": "http.response.body", "body": data, "more_body": True})

    def finish(self, data: bytes = b"") -> None:
        self.push({"type": "http.response.body", "body": data, "more_body": False})

    async def drained(self) -> None:
        """Wait until the server took everything; raises what `send` raised."""
        if self._drive is not None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Nothing more will be sent."""
        if self._drive is not None:
            self._drive.stop()
            self._drive = None
        self._backlog.clear()

    def _start(self, message: Message) -> None:
        coro: Any = self._send(message)
        try:
            waits_for = coro.send(None)
        except StopIteration:
            if not message.get("more_body", True):
                self.closed = True
            return
        except Exception as error:  # noqa: BLE001 - we are in a read callback: `drained` raises it
            self._error = error
            return
        last = not message.get("more_body", True)
        self._drive = Drive(coro, waits_for, lambda _, error: self._sent(last, error))
        self.on_blocked()

    def _sent(self, last: bool, error: BaseException | None) -> None:
        self._drive = None
        self._error = self._error or error
        self.closed = self.closed or (last and error is None)
        while self._backlog and not self._stuck:
            self._start(self._backlog.popleft())
        if not self._blocked:
            self.on_free()
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)


class ClientWatch:
    """Calls `on_left` once when `receive` reports that the client is gone.

    Started when the request body is complete: from then on `receive` only waits.
    """

    __slots__ = ("_drive", "_on_left", "_receive")

    def __init__(self, receive: Receive, on_left: Callable[[], None]) -> None:
        self._receive = receive
        self._on_left = on_left
        self._drive: Drive | None = None

    def start(self) -> None:
        coro: Any = self._receive()
        try:
            waits_for = coro.send(None)
        except StopIteration as stop:
            self._got(stop.value, None)
        else:
            self._drive = Drive(coro, waits_for, self._got)

    def stop(self) -> None:
        if self._drive is not None:
            self._drive.stop()
            self._drive = None

    def _got(self, message: Message | None, error: BaseException | None) -> None:
        self._drive = None
        if error is not None or message is None or message["type"] == "http.disconnect":
            self._on_left()
        else:
            self.start()
