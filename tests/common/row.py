"""nginx, the real gateway and a scripted engine in a row, and the two doors to try a case through.

    with running(folder) as row:
        reply = row.door("nginx").ask(*stream("a"))

Time-outs are short enough to be waited for and keep their order: idle < first byte < nginx.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.fake_vllm import FakeVLLM, Received
from common.front import MAX_BODY, Front, replace
from common.rawhttp import Client, Reply, build
from common.script import Step
from common.servers import AUTH, CHAT, GatewayProcess, wait_until, write_keys

STREAM = b'{"stream":true}'
# As the engine gets it once usage is asked for: nothing is left for the gateway to add.
WITH_USAGE = b'{"stream":true,"stream_options":{"include_usage":true}}'
IDLE_S, FIRST_BYTE_S, NGINX_S = 1.0, 1.5, 4


@dataclass(frozen=True)
class Door:
    """One way in; `port` is nginx's or the gateway's own."""

    name: str
    port: int
    gateway: GatewayProcess
    engine: FakeVLLM
    front: Front

    def client(self) -> Client:
        return Client(self.port)

    def ask(
        self, *script: Step, body: bytes | object = STREAM, path: str = CHAT, **headers: str
    ) -> Reply:
        """One POST with the key; the engine follows `script`, or answers sensibly without one."""
        if script:
            self.engine.enqueue(*script)
        with self.client() as client:
            return client.request("POST", path, {**AUTH, **headers}, body)

    def raw(self, data: bytes) -> Reply:
        """These bytes as they are, and the first answer."""
        with self.client() as client:
            client.send(data)
            return client.read_body(client.read_head())

    def send(self, client: Client, body: bytes | object = STREAM, **headers: str) -> None:
        client.send(build("POST", CHAT, {**AUTH, **headers}, body))

    def line(self, reply: Reply) -> dict[str, Any]:
        """The gateway's log line of that answer."""
        request_id = reply.header("x-request-id")
        wait_until(lambda: self._lines(request_id))
        (line,) = self._lines(request_id)
        return line

    def _lines(self, request_id: str | None) -> list[dict[str, Any]]:
        return [one for one in self.gateway.events() if one["request_id"] == request_id]

    @property
    def received(self) -> Received:
        """What reached the engine last."""
        return self.engine.requests[-1]

    def idle(self) -> bool:
        counts = self.gateway.status()["gateway"]
        return bool(counts["in_flight"] == counts["queued"] == 0)


@dataclass(frozen=True)
class Row:
    """The three of them, ready."""

    gateway: GatewayProcess
    engine: FakeVLLM
    front: Front

    def door(self, name: str) -> Door:
        port = self.front.port if name == "nginx" else self.gateway.port
        return Door(name, port, self.gateway, self.engine, self.front)


@contextmanager
def running(folder: Path, keys: str | None = None, **settings: object) -> Iterator[Row]:
    """Start a row; `keys`: the key file's text, `settings` of the gateway besides the time-outs."""
    short = {"first_byte_timeout_s": FIRST_BYTE_S, "idle_timeout_s": IDLE_S, "hold_s": 0.5}
    values = {**short, "max_body_bytes": MAX_BODY, **settings}
    waits = replace("proxy_read_timeout 28800s", f"proxy_read_timeout {NGINX_S}s")
    with (
        FakeVLLM() as engine,
        GatewayProcess(write_keys(folder, keys), engine.url, **values) as gateway,
        Front(
            folder / "front", f"127.0.0.1:{gateway.port}", edits={"server/proxy.conf": waits}
        ) as front,
    ):
        gateway.wait_ready()
        yield Row(gateway, engine, front)
