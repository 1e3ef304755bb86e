"""A small Hugging Face hub on a loopback port, for the real huggingface_hub (HF_ENDPOINT).

Answers what the hub answers, error codes in headers included: huggingface.co says 401 with
`RepoNotFound` to somebody without a token, whether a model is private or does not exist.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote

GOOD_TOKEN = "hf_goodgoodgood"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Model:
    files: dict[str, bytes]
    private: bool = False
    gated: bool = False
    commit: str = COMMIT
    listed: dict[str, int] = field(default_factory=dict)  # sizes the API tells, where not true


@dataclass
class Hub:
    """`cut_after`: close the connection of file downloads after so many bytes, while set."""

    models: dict[str, Model]
    always: tuple[int, str] | None = None  # status and X-Error-Code of every answer
    cut_after: int | None = None
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    tokens: list[str | None] = field(default_factory=list)
    sent: int = 0

    def __enter__(self) -> Hub:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def log_message(self, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = unquote(request.path.partition("?")[0])
        bearer = request.headers.get("Authorization")
        token = bearer.removeprefix("Bearer ") if bearer else None
        self.seen.append((request.command, path, request.headers.get("Range")))
        self.tokens.append(token)
        refusal = self._refusal(path, token)
        if refusal:
            self._error(request, *refusal, body=body)
        elif path.startswith("/api/models/"):
            self._send_json(request, self._api(path), body=body)
        else:
            self._send_file(request, path, body=body)

    def _model(self, path: str) -> tuple[str, Model] | None:
        for name, model in self.models.items():
            if path.startswith((f"/api/models/{name}", f"/{name}/")):
                return name, model
        return None

    def _refusal(self, path: str, token: str | None) -> tuple[int, str, str] | None:
        if self.always:
            return (*self.always, "as the test wants")
        if token is not None and token != GOOD_TOKEN:
            return 401, "", "Invalid credentials in Authorization header"
        found = self._model(path)
        if found is None or (found[1].private and token is None):
            status = 401 if token is None else 404
            return status, "RepoNotFound", "Repository not found"
        if found[1].gated and "/resolve/" in path:
            status = 401 if token is None else 403
            return status, "GatedRepo", "Access to model is restricted"
        revision = re.search(r"/(?:revision|resolve|tree)/([^/]+)", path)
        if revision and revision[1] not in ("main", found[1].commit):
            return 404, "RevisionNotFound", "Invalid rev id"
        return None

    def _error(
        self, request: BaseHTTPRequestHandler, status: int, code: str, text: str, *, body: bool
    ) -> None:
        content = json.dumps({"error": text}).encode()
        request.send_response(status)
        if code:
            request.send_header("X-Error-Code", code)
        request.send_header("X-Error-Message", text)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if body:
            request.wfile.write(content)

    def _api(self, path: str) -> object:
        name, model = self._model(path) or ("", Model({}))
        if "/tree/" in path:
            return [self._tree_entry(file, data) for file, data in model.files.items()]
        return {
            "_id": "1",
            "id": name,
            "modelId": name,
            "sha": model.commit,
            "private": model.private,
            "gated": "manual" if model.gated else False,
            "siblings": [
                {"rfilename": file, "size": model.listed.get(file, len(data))}
                for file, data in model.files.items()
            ],
        }

    @staticmethod
    def _tree_entry(file: str, data: bytes) -> dict[str, object]:
        oid = hashlib.sha256(data).hexdigest()
        return {"type": "file", "path": file, "size": len(data), "oid": oid}

    @staticmethod
    def _send_json(request: BaseHTTPRequestHandler, value: object, *, body: bool) -> None:
        content = json.dumps(value).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if body:
            request.wfile.write(content)

    def _send_file(self, request: BaseHTTPRequestHandler, path: str, *, body: bool) -> None:
        _, model = self._model(path) or ("", Model({}))
        name = path.split("/resolve/", 1)[1].split("/", 1)[1]
        data = model.files.get(name)
        if data is None:
            self._error(request, 404, "EntryNotFound", "Entry not found", body=body)
            return
        start = 0
        if asked := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range") or ""):
            start = int(asked[1])
        request.send_response(206 if start else 200)
        request.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        request.send_header("X-Repo-Commit", model.commit)
        request.send_header("Accept-Ranges", "bytes")
        request.send_header("Content-Length", str(len(data) - start))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        request.end_headers()
        if body:
            self._send_body(request, data[start:])

    def _send_body(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        whole = self.cut_after is None or len(data) <= self.cut_after
        piece = data if whole else data[: self.cut_after]
        request.wfile.write(piece)
        request.wfile.flush()
        self.sent += len(piece)
        if not whole:
            request.close_connection = True
