"""A TCP proxy that ends connections at a commit, as a failing network does.

    with Cutter(server.port, ["pass", "after"]) as cutter:
        url = PostgreSQL.url("db", cutter.port)

Each COMMIT that passes takes the next word of the plan; past its end all pass.
  pass    go on
  before  both sides are cut, the commit never arrives
  after   the commit is answered, the answer never arrives
  late    the client is cut at once, the commit arrives half a second later
  hang    nothing comes back, nothing is cut
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType

LATE_S = 0.5


class Cutter:
    """Use as a context manager."""

    def __init__(self, port: int, plan: list[str]) -> None:
        self._server = port
        self.plan = plan
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Cutter:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            close(each)
        for thread in self._threads:
            thread.join(5)

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                self._sockets += [client, server]
                self._start(self._forth, client, server)
                self._start(self._back, client, server)

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                word = "pass"
                if b"COMMIT" in data and self.plan:
                    word = self.plan.pop(0)
                if word == "pass":
                    server.sendall(data)
                    continue
                self._cut(word, data, client, server)
                return
        close(server)

    @staticmethod
    def _cut(word: str, data: bytes, client: socket.socket, server: socket.socket) -> None:
        if word == "hang":
            return
        if word == "after":
            # Nobody reads the client's answer: it is shut for writing before the server has it.
            client.shutdown(socket.SHUT_WR)
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            return
        close(client)
        if word == "late":
            time.sleep(LATE_S)
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        else:
            close(server)

    @staticmethod
    def _back(client: socket.socket, server: socket.socket) -> None:
        """What the server says; it is read to its end even when the client is gone."""
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                with contextlib.suppress(OSError):
                    client.sendall(data)
        close(client)
        close(server)


def close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
