"""A slow engine for container tests: `max_tokens` events, five a second, and a launcher's status.

Runs inside a container on bare Python (standard library only), in vllm's place and on its ports.
It exists where the real engine cannot be told to take exactly six seconds, or for ever.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

INTERVAL_S = 0.2
MODEL = "slow"
STATUS = {
    "phase": "ready",
    "ready": True,
    "message": "ready",
    "since": 0,
    "started": 0,
    "model": MODEL,
    "served_model_names": [MODEL],
    "engine_version": "0.0.0",
    "device": "cpu",
    "graphs": {"verdict": "not applicable", "reason": "a test engine"},
    "kv_cache": {"tokens": None, "usage": None},
    "running": 0,
    "waiting": 0,
    "prompt_tokens_total": 0,
    "generation_tokens_total": 0,
}


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""

    def answer(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Status(Quiet):
    def do_GET(self) -> None:
        self.answer(STATUS)


class Engine(Quiet):
    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1}]}
        self.answer(models if self.path == "/v1/models" else {})

    def do_POST(self) -> None:
        try:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        except ValueError:
            self.answer({"error": {"message": "not JSON", "type": "BadRequestError"}}, 400)
            return
        tokens = int(request.get("max_tokens", 1))
        if not request.get("stream"):
            self.answer({"id": "c1", "choices": [{"message": {"content": "x" * tokens}}]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for _ in range(tokens):
            self.event(choice({"content": "x"}, None))
            time.sleep(INTERVAL_S)
        self.event(choice({}, "stop"))
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, body: object) -> None:
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        self.wfile.flush()


def choice(delta: dict[str, str], finish_reason: str | None) -> dict[str, object]:
    only = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [only],
    }


def main() -> None:
    status = ThreadingHTTPServer(("0.0.0.0", 8001), Status)
    threading.Thread(target=status.serve_forever, daemon=True).start()
    ThreadingHTTPServer(("0.0.0.0", 8000), Engine).serve_forever()


if __name__ == "__main__":
    main()
