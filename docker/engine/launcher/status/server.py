"""Serves the status (`/`, `/status`) and the launcher's own metrics on the status port."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SOCKET_TIMEOUT_S = 10  # a client that says nothing must not keep a thread


class Page:
    """One page: where its text comes from and what it is."""

    def __init__(self, content_type: str, text: Callable[[], str]) -> None:
        self.content_type, self.text = content_type, text


def json_page(source: Callable[[], Mapping[str, object]]) -> Page:
    """A page of one JSON object."""
    return Page("application/json", lambda: json.dumps(source()) + "\n")


class StatusServer(ThreadingHTTPServer):
    """The listening server; `server_port` of its address is the port in use."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Page]) -> None:
        self.pages = pages
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
        page = self.server.pages.get(self.path.partition("?")[0])
        self._answer(200 if page else 404, page or NOT_FOUND)

    def _answer(self, status: int, page: Page) -> None:
        body = page.text().encode()
        self.send_response_only(status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the gateway asks every second."""


NOT_FOUND = json_page(lambda: {"error": "not found; the status is at /status"})


def serve(host: str, port: int, pages: Mapping[str, Page]) -> StatusServer:
    """Start serving `pages` by path, in a thread of its own. Raises OSError where the port is
    taken."""
    server = StatusServer((host, port), pages)
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server
