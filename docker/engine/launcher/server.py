"""Serves the status as JSON on the status port (`/` and `/status`)."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

StatusSource = Callable[[], dict[str, object]]
SOCKET_TIMEOUT_S = 10  # a client that says nothing must not keep a thread


class StatusServer(ThreadingHTTPServer):
    """The listening server; `server_port` of its address is the port in use."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], source: StatusSource) -> None:
        self.source = source
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # The base class would look its own name up, which can wait for a DNS that isn't there.
        socketserver.TCPServer.server_bind(self)


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer
    protocol_version = "HTTP/1.1"
    timeout = SOCKET_TIMEOUT_S

    def do_GET(self) -> None:
        found = self.path.partition("?")[0] in ("/", "/status")
        self._answer(200 if found else 404, self.server.source() if found else _not_found())

    def _answer(self, status: int, value: dict[str, object]) -> None:
        body = json.dumps(value).encode() + b"\n"
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the gateway asks every second."""


def _not_found() -> dict[str, object]:
    return {"error": "not found; the status is at /status"}


def serve(host: str, port: int, source: StatusSource) -> StatusServer:
    """Start serving in a thread of its own. Raises OSError where the port is taken."""
    server = StatusServer((host, port), source)
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server
