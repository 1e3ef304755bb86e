"""Process entry: settings, logging, one server. With --check only settings and keys are judged.

Exit codes: 0 stopped in order, 1 stopped by a fault of its own, 2 bad input.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys

import uvloop

from gateway.keys import KeyFileError, read_keys
from gateway.ledger.opening import check as check_ledger
from gateway.lines import whole_lines
from gateway.log import set_up_logging
from gateway.settings import Settings, SettingsError, load_settings

FAULT = 1
BAD_INPUT = 2
BACKLOG = 4096


def main(arguments: list[str]) -> int:
    """Serve until told to stop, or only check."""
    if arguments not in ([], ["--check"]):
        return _refuse(["usage: python -m gateway [--check]; settings come from the environment"])
    try:
        settings = load_settings(os.environ)
        if arguments:
            read_keys(settings.api_keys_file)
            check_ledger(settings.usage_db)
            return 0
        return run(settings)
    except SettingsError as error:
        return _refuse(error.lines)
    except KeyFileError as error:
        return _refuse([f"GATEWAY_API_KEYS_FILE: {error}"])


def run(settings: Settings) -> int:
    """Serve until told to stop, or until a part of it fails."""
    sys.stdout = whole_lines(sys.stdout.fileno())
    set_up_logging(settings.log_level, sys.stdout)
    with _listen(settings) as listener:
        _allow_many_sockets()
        if settings.workers > 1:
            from gateway.workers import manage  # which one worker does not load

            return manage(settings, listener)
        return uvloop.run(_serve(settings, listener))


async def _serve(settings: Settings, listener: socket.socket) -> int:
    # Not at the top: neither --check nor the manager of several workers loads what serves.
    from gateway.app import create_gateway
    from gateway.server import Server, collect_seldom, server_config

    gateway = create_gateway(settings, sys.stdout.buffer)
    collect_seldom()
    server = Server(server_config(gateway.app), gateway.drain, settings.drain_s)
    host, port = listener.getsockname()[:2]
    logging.getLogger("gateway").info("listening on http://%s:%d", host, port)
    await server.serve([listener])
    return FAULT if gateway.drain.failed else 0


def _listen(settings: Settings) -> socket.socket:
    """Bind before anything is built, so that a taken port is one clear line."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a host name at all
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise SettingsError(
            [
                f"GATEWAY_HOST, GATEWAY_PORT: found {settings.host!r} and {settings.port}, where "
                f"listening fails ({reason}); wanted a free port of an own address; "
                "fix: choose another, or stop what listens there"
            ]
        ) from None


def _allow_many_sockets() -> None:
    """Two sockets a stream: the usual soft limit of 1024 files would end at 500 streams."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _refuse(lines: list[str]) -> int:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
