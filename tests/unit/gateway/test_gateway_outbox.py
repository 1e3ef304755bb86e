"""`send` and `receive` driven from callbacks: order, back-pressure, errors, stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message

from gateway.outbox import ClientWatch, Outbox


class Client:
    """Takes messages; waits while `paused`, as a server with a full transport does."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.free = asyncio.Event()
        self.free.set()
        self.error: Exception | None = None
        self.one_at_a_time = False

    async def send(self, message: Message) -> None:
        await self.free.wait()
        if self.error is not None:
            raise self.error
        self.got.append(message)
        if self.one_at_a_time:
            self.free.clear()

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.got]


def run(test: Callable[[Client, Outbox, list[str]], object]) -> None:
    async def inside() -> None:
        client = Client()
        outbox = Outbox(client.send)
        calls: list[str] = []
        outbox.on_blocked = lambda: calls.append("blocked")
        outbox.on_free = lambda: calls.append("free")
        work = test(client, outbox, calls)
        if asyncio.iscoroutine(work):
            await work

    asyncio.run(inside())


def test_a_free_client_has_it_at_once() -> None:
    def test(client: Client, outbox: Outbox, calls: list[str]) -> None:
        outbox.body(b"a")
        assert client.bodies == [b"a"]
        assert not outbox.closed
        outbox.finish(b"b")
        assert client.bodies == [b"a", b"b"]
        assert outbox.closed
        assert calls == []

    run(test)


def test_a_paused_client_gets_all_in_order() -> None:
    async def test(client: Client, outbox: Outbox, calls: list[str]) -> None:
        client.free.clear()
        for data in (b"a", b"b"):
            outbox.body(data)
        outbox.finish(b"c")
        assert (client.bodies, calls, outbox.closed) == ([], ["blocked"], False)
        client.free.set()
        await outbox.drained()
        assert client.bodies == [b"a", b"b", b"c"]
        assert (calls, outbox.closed) == (["blocked", "free"], True)

    run(test)


def test_it_can_block_again_in_the_middle_of_the_backlog() -> None:
    async def test(client: Client, outbox: Outbox, calls: list[str]) -> None:
        client.one_at_a_time = True
        client.free.clear()
        outbox.body(b"a")
        outbox.body(b"b")
        client.free.set()
        await asyncio.sleep(0.01)
        assert client.bodies == [b"a"]
        client.free.set()
        await outbox.drained()
        assert client.bodies == [b"a", b"b"]
        assert calls[-1] == "free"

    run(test)


@pytest.mark.parametrize("paused", [True, False])
def test_an_error_of_send_surfaces_in_drained(paused: bool) -> None:
    async def test(client: Client, outbox: Outbox, calls: list[str]) -> None:
        client.error = RuntimeError("too long")
        if paused:
            client.free.clear()
        outbox.body(b"a")
        outbox.body(b"b")
        client.free.set()
        with pytest.raises(RuntimeError, match="too long"):
            await outbox.drained()
        assert client.bodies == []

    run(test)


def test_stopping_drops_what_waits() -> None:
    async def test(client: Client, outbox: Outbox, calls: list[str]) -> None:
        client.free.clear()
        outbox.body(b"a")
        outbox.stop()
        client.free.set()
        await asyncio.sleep(0.01)
        assert client.bodies == []

    run(test)


def test_the_watch_reports_a_disconnect_once() -> None:
    async def inside() -> None:
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        left: list[str] = []
        watch = ClientWatch(inbox.get, lambda: left.append("left"))
        watch.start()
        inbox.put_nowait({"type": "http.request", "body": b""})
        await asyncio.sleep(0.01)
        assert left == []
        inbox.put_nowait({"type": "http.disconnect"})
        await asyncio.sleep(0.01)
        watch.stop()
        assert left == ["left"]

    asyncio.run(inside())


def test_a_stopped_watch_is_silent() -> None:
    async def inside() -> None:
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        left: list[str] = []
        watch = ClientWatch(inbox.get, lambda: left.append("left"))
        watch.start()
        inbox.put_nowait({"type": "http.disconnect"})  # its future is done, its callback is due
        watch.stop()
        await asyncio.sleep(0.01)
        assert left == []

    asyncio.run(inside())
