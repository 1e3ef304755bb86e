"""The yardstick: what raw ASGI and aiohttp cost when they only copy bytes.

No keys, limits, counters, logs or endings; not even a client that leaves is noticed.

Run: `python -m bench.gateway.bytecopy PORT UPSTREAM`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HOP = {b"transfer-encoding", b"connection", b"keep-alive"}


class ByteCopy:
    """An ASGI application that sends each request to one upstream."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._copy(scope["method"], scope["path"], await _body(receive), send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as self._session:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _copy(self, method: str, path: str, body: bytes, send: Send) -> None:
        headers = {"content-type": "application/json"}
        async with self._session.request(
            method, self._upstream + path, data=body, headers=headers
        ) as answer:
            kept = [(n.lower(), v) for n, v in answer.raw_headers if n.lower() not in HOP]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


if __name__ == "__main__":
    uvicorn.run(
        ByteCopy(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="error",
        server_header=False,
        date_header=False,
        backlog=4096,
    )
