"""One worker of several: `python -m gateway.worker NAME LISTENER LIFELINE`, started by workers.py.

NAME: as no other process was ever called. LISTENER: the bound socket that all workers share.
LIFELINE: a socket to the manager. One byte there says that this worker serves; its end says that
the manager is gone, on which the worker drains as after SIGTERM, so that nobody is left behind.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import uvicorn
import uvloop

from gateway.app import Gateway, create_gateway
from gateway.keys import KeyFileError
from gateway.lines import whole_lines
from gateway.log import set_up_logging
from gateway.server import Server, collect_seldom, server_config
from gateway.settings import Settings, SettingsError, load_settings

FAULT = 1
BAD_INPUT = 2


def main(arguments: list[str]) -> int:
    name, listener, lifeline = arguments[0], int(arguments[1]), int(arguments[2])
    settings = load_settings(os.environ)  # the manager has judged them
    sys.stdout = whole_lines(sys.stdout.fileno())
    set_up_logging(settings.log_level, sys.stdout)
    with socket.socket(fileno=listener) as shared, socket.socket(fileno=lifeline) as manager:
        try:
            return uvloop.run(_serve(settings, name, shared, manager))
        except KeyFileError as error:
            sys.stderr.write(f"GATEWAY_API_KEYS_FILE: {error}\n")
        except SettingsError as error:
            sys.stderr.write("".join(f"{line}\n" for line in error.lines))
        return BAD_INPUT


async def _serve(
    settings: Settings, name: str, listener: socket.socket, manager: socket.socket
) -> int:
    gateway = create_gateway(settings, sys.stdout.buffer, name)
    collect_seldom()
    loop = asyncio.get_running_loop()
    manager.setblocking(False)
    loop.add_reader(manager, gateway.drain.begin)  # it never writes: readable means gone
    try:
        await WorkerServer(server_config(gateway.app), gateway, settings, manager).serve([listener])
    finally:
        loop.remove_reader(manager)
    return FAULT if gateway.drain.failed else 0


class WorkerServer(Server):
    """Tells the manager when it serves."""

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, settings: Settings, manager: socket.socket
    ) -> None:
        super().__init__(config, gateway.drain, settings.drain_s)
        self._manager = manager

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._manager.send(b"1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
