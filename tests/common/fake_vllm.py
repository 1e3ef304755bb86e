"""A scripted raw-TCP upstream that stands in for vLLM in tests.

It writes exact bytes with pauses, resets and closes, logs what it received and when the peer
went away, and answers `/health` and `/v1/models` by itself. It checks nothing and computes
nothing. In a test:

    with FakeVLLM() as fake:
        fake.enqueue(Send(sse_head()), Send(chunk(EV)), Reset())   # for the next request
        ...                                                        # talk to fake.url
        request = fake.requests[0]                                 # what arrived
        fake.wait_until(lambda: request.closed_at is not None)     # the peer went away

From the command line (PYTHONPATH=tests): `python -m common.fake_vllm --port 8000 --tokens 64`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from common.script import (
    Fin,
    Pause,
    Repeat,
    Reset,
    Script,
    Send,
    Step,
    answer,
    stream,
)

T = TypeVar("T")
PROBES = {"/health", "/v1/models", "/version", "/metrics"}


@dataclass(eq=False)
class Received:
    """One request as it arrived. Times are `time.monotonic()`."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    connection: int
    nth: int  # 1 for the first request of its connection
    at: float
    body: bytes = b""
    complete: bool = False  # the whole body arrived
    answered_at: float | None = None  # the script ran to its end
    closed_at: float | None = None  # the peer closed, or reset, before that
    closed_how: str | None = None  # "fin" or "rst"

    def header(self, name: str) -> bytes | None:
        """The value of the only header of that name, None when there is none."""
        values = [value for key, value in self.headers if key.lower() == name.encode()]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


@dataclass
class Behaviour:
    """What can be turned while the fake runs."""

    script: Script | None = None  # for requests with no enqueued script; None: answer sensibly
    health: int = 200
    models: tuple[str, ...] = ("m",)
    tokens: int = 8
    interval_s: float = 0.0
    think_s: float = 0.0  # before the first byte of a sensible answer
    idle_s: float | None = None  # close an idle connection after so long
    drop_reused: bool = False  # close when a second request arrives on a connection
    drop_unread: bool = False  # close as soon as the first request bytes arrive
    accept_delay_s: float = 0.0


@dataclass(eq=False)
class _Peer:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    nth: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class FakeVLLM:
    """The fake, on a loop in a thread of its own. Use as a context manager."""

    def __init__(
        self, behaviour: Behaviour | None = None, port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.host = host
        self.port = port
        self.log: list[Received] = []
        self.by_id: dict[bytes, Script] = {}  # for the requests with this x-request-id
        self._scripts: deque[Script] = deque()
        self._peers: set[_Peer] = set()
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeVLLM:
        self._thread.start()
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop_listening()
        self._call(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def requests(self) -> list[Received]:
        """What was asked apart from health and model probes."""
        return [one for one in self.log if one.target.split("?")[0] not in PROBES]

    @property
    def open_connections(self) -> int:
        return len(self._peers)

    def enqueue(self, *steps: Step) -> None:
        """Use this script for the next request that has none yet (probes never take one)."""
        self._scripts.append(steps)

    def clear(self) -> None:
        """Forget the log and scripts not yet used; connections stay."""
        self.log.clear()
        self.by_id.clear()
        self._scripts.clear()

    def listen(self) -> None:
        """Accept connections (again), on the same port as before."""
        self._call(self.start())

    def stop_listening(self, reset: bool = False) -> None:
        """Refuse new connections; with `reset` also cut those that are open, as a crash does."""
        self._call(self.stop(reset))

    def deafen(self) -> None:
        """Stay in the port but accept nobody, with no room left to wait: connecting takes for ever.
        `stop_listening` and `listen` end it.
        """
        self._call(self._deafen())

    def wait_until(self, condition: Callable[[], object], timeout_s: float = 5.0) -> None:
        """Poll `condition` until it is true; AssertionError after `timeout_s`."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not so within {timeout_s} s; log: {self.log!r:.2000}"
            time.sleep(0.005)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 50.0) -> T:
        """Run the test's own coroutine on the fake's loop: one thread for both sides is fastest."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _call(self, work: Coroutine[object, object, None]) -> None:
        self.run(work, 5)

    async def start(self) -> None:
        """`listen`, for callers on the loop of `run`."""
        self._server = await asyncio.start_server(
            self._serve, self.host, self.port, backlog=2048, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self, reset: bool) -> None:
        """`stop_listening`, for callers on the loop of `run`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if reset:
            for peer in list(self._peers):
                _reset(peer.writer)
            await asyncio.sleep(0)

    async def _deafen(self) -> None:
        assert self._server is not None
        (listener,) = self._server.sockets
        self._loop.remove_reader(listener.fileno())
        with socket.socket(fileno=socket.dup(listener.fileno())) as again:
            again.listen(0)

    async def _cancel_all(self) -> None:
        """A connection that was just accepted becomes a task a turn of the loop later, and a
        transport with unsent bytes would stay open for ever; one that was closed needs a turn or
        two. Else the interpreter finds their sockets later, in some other test.
        """
        for _ in range(8):
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in list(self._writers):
                writer.transport.abort()
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        peer = _Peer(reader, writer, self._connections)
        self._peers.add(peer)
        self._writers.add(writer)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.sleep(self.behaviour.accept_delay_s)
            while await self._one_request(peer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the log has it
        except asyncio.CancelledError:
            pass  # the fake stops; a stream server would report its handler's cancellation
        finally:
            self._peers.discard(peer)
            writer.close()

    async def _one_request(self, peer: _Peer) -> bool:
        """Read a request, run its script. False: this connection is finished."""
        raw = await self._read_head(peer)
        if raw is None:
            return False
        peer.nth += 1
        request = _parse_head(raw, peer)
        self.log.append(request)
        if self.behaviour.drop_reused and peer.nth > 1:
            return False
        try:
            request.body = await _read_body(peer.reader, request)
            request.complete = True
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            _note_close(request, error)
            return False
        return await self._answer(peer, request)

    async def _read_head(self, peer: _Peer) -> bytes | None:
        try:
            async with asyncio.timeout(self.behaviour.idle_s if peer.nth else None):
                first = await peer.reader.read(1)
                if not first or self.behaviour.drop_unread:
                    return None
                return first + await peer.reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return None

    async def _answer(self, peer: _Peer, request: Received) -> bool:
        watch = asyncio.ensure_future(_watch(peer, request))
        try:
            go_on = await self._run(peer, self._choose(request))
            if not peer.gone.is_set():
                request.answered_at = time.monotonic()
            return go_on and not peer.gone.is_set()
        except ConnectionError as error:  # a write met the close before the watch did
            if request.closed_at is None:
                _note_close(request, error)
            raise
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    def _choose(self, request: Received) -> Script:
        probe = self._probe(request.target.split("?")[0])
        if probe is not None:
            return probe
        own = self.by_id.get(request.header("x-request-id") or b"")
        if own is not None:
            return own
        if self._scripts:
            return self._scripts.popleft()
        return self.behaviour.script or self._sensible(request)

    def _probe(self, path: str) -> Script | None:
        if path == "/health":
            return answer(b"", self.behaviour.health)
        if path == "/v1/models":
            data = [{"id": name, "object": "model"} for name in self.behaviour.models]
            return answer({"object": "list", "data": data})
        return answer({"version": "0.0.0"}) if path in PROBES else None

    def _sensible(self, request: Received) -> Script:
        """Stream when asked to, else one JSON answer."""
        try:
            wants_stream = json.loads(request.body).get("stream") is True
        except (ValueError, AttributeError, RecursionError):
            wants_stream = False
        behaviour = self.behaviour
        if not wants_stream:
            return (Pause(behaviour.think_s), *answer())
        words = [f"word{number} " for number in range(behaviour.tokens)]
        return (Pause(behaviour.think_s), *stream(*words, interval_s=behaviour.interval_s))

    async def _run(self, peer: _Peer, script: Script) -> bool:
        for step in script:
            if peer.gone.is_set():
                return False
            if not await _run_step(peer, step):
                return False
        return True


async def _run_step(peer: _Peer, step: Step) -> bool:
    match step:
        case Send(data):
            await _write(peer, data)
        case Pause(seconds):
            await _sleep(peer, seconds)
        case Repeat(data, times, interval_s):
            for _ in range(times):
                if peer.gone.is_set():
                    break
                await _write(peer, data)
                await _sleep(peer, interval_s)
        case Fin():
            return False
        case Reset():
            _reset(peer.writer)
            return False
    return True


async def _write(peer: _Peer, data: bytes) -> None:
    peer.writer.write(data)
    await peer.writer.drain()


async def _sleep(peer: _Peer, seconds: float) -> None:
    """Let this segment leave alone, then wait; a peer that goes away ends the wait."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    try:
        async with asyncio.timeout(seconds):
            await peer.gone.wait()
    except TimeoutError:
        pass


async def _watch(peer: _Peer, request: Received) -> None:
    """Notice that the peer closed while the script runs. Pipelining is not served."""
    try:
        data = await peer.reader.read(1)
        assert not data, "the peer sent bytes before its answer was whole"
        request.closed_how = "fin"
    except ConnectionError:
        request.closed_how = "rst"
    request.closed_at = time.monotonic()
    peer.gone.set()


def _note_close(request: Received, error: Exception) -> None:
    request.closed_at = time.monotonic()
    request.closed_how = "rst" if isinstance(error, ConnectionError) else "fin"


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _parse_head(raw: bytes, peer: _Peer) -> Received:
    first, *lines = raw[:-4].split(b"\r\n")
    method, target, _ = first.decode("latin-1").split(" ", 2)
    pairs = [line.split(b":", 1) for line in lines]
    headers = [(name, value.strip()) for name, value in pairs]
    return Received(method, target, headers, peer.number, peer.nth, time.monotonic())


async def _read_body(reader: asyncio.StreamReader, request: Received) -> bytes:
    if request.header("transfer-encoding") is None:
        return await reader.readexactly(int(request.header("content-length") or b"0"))
    parts: list[bytes] = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


def main() -> None:
    """Serve until interrupted; for load tests and for trying a front end by hand."""
    parser = argparse.ArgumentParser(description="A scripted stand-in for vLLM's HTTP server.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=32, help="events in a stream")
    parser.add_argument("--interval-ms", type=float, default=20.0, help="time between two events")
    parser.add_argument("--think-ms", type=float, default=0.0, help="time to the first byte")
    parser.add_argument("--model", action="append", help="a served name; may be given again")
    options = parser.parse_args()
    behaviour = Behaviour(
        models=tuple(options.model or ("m",)),
        tokens=options.tokens,
        interval_s=options.interval_ms / 1000,
        think_s=options.think_ms / 1000,
    )
    with FakeVLLM(behaviour, options.port) as fake:
        print(f"fake vLLM on {fake.url}", flush=True)  # noqa: T201 - a command's own output
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
