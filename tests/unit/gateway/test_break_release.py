"""A connection has one watcher at a time: the one that is done does not let go of its successor."""

from __future__ import annotations

import asyncio

import uvicorn
from uvicorn.server import ServerState

from gateway.client import ClientConnection, nothing
from gateway.drain import Interrupt


async def _release() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        """Never called."""

    config = uvicorn.Config(app, loop="none", lifespan="off", ws="none", log_config=None)
    client = ClientConnection(config, ServerState(), {}, asyncio.get_running_loop())
    first, second = Interrupt(), Interrupt()
    client.on_left = second.client_left  # it began when the client took the end of the first
    client.release(first.client_left)
    assert client.on_left == second.client_left
    client.release(second.client_left)
    assert client.on_left is nothing


def test_only_the_own_watch_ends() -> None:
    asyncio.run(_release())
