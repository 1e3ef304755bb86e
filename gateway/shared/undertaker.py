"""Frees at once what a dead worker held, instead of after its time."""

from __future__ import annotations

import asyncio
import contextlib

from valkey.asyncio import Connection
from valkey.asyncio.connection import parse_url
from valkey.exceptions import ValkeyError

from gateway.shared.link import CONNECT_S
from gateway.shared.scripts import BURY


async def bury(url: str, worker: str) -> None:
    """End all sessions of that worker. Without Valkey nothing is to be done: they end in time."""
    connection = Connection(**parse_url(url), socket_timeout=None)
    try:
        with contextlib.suppress(ValkeyError, OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                await connection.connect()  # type: ignore[no-untyped-call]
                await connection.send_command("EVAL", BURY.text, 0, worker)
                await connection.read_response()
    finally:
        await connection.disconnect(nowait=True)
