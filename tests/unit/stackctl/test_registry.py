"""Digests of a registry that answers from a script: the token, the index, every refusal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from stackctl import registry
from stackctl.errors import StackError

DIGEST = "sha256:" + "a" * 64
INDEX = b'{"schemaVersion": 2, "manifests": []}'
Answer = tuple[int, dict[str, str], bytes]
Asked = tuple[str, str, Mapping[str, str]]  # method, path, headers
Script = Callable[[Asked, str], Answer]


@contextmanager
def served(script: Script) -> Iterator[tuple[str, list[Asked]]]:
    """host:port of a registry whose answers `script` decides, and what it was asked."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            question = (self.command, self.path, dict(self.headers))
            asked.append(question)
            status, headers, body = script(question, self.headers["Host"])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def guarded(question: Asked, host: str) -> Answer:
    """As Docker Hub: anonymous clients fetch a token for the one repository first."""
    _, path, headers = question
    if path.startswith("/token?"):
        query = parse_qs(urlsplit(path).query)
        assert query == {"service": ["hub"], "scope": ["repository:o/image:pull"]}
        assert "Authorization" not in headers
        return 200, {}, b'{"token": "T1"}'
    if headers.get("Authorization") != "Bearer T1":
        challenge = (
            f'Bearer realm="http://{host}/token",service="hub",scope="repository:o/image:pull"'
        )
        return 401, {"WWW-Authenticate": challenge}, b"{}"
    accepted = headers["Accept"].split(", ")
    assert accepted[0] == "application/vnd.oci.image.index.v1+json"
    return 200, {"Docker-Content-Digest": DIGEST}, b""


def test_the_token_is_fetched_where_the_registry_says() -> None:
    with served(guarded) as (host, asked):
        image = registry.parse(f"{host}/o/image:v1")
        assert registry.digest(image, {}) == DIGEST
    assert [(method, path.partition("?")[0]) for method, path, _ in asked] == [
        ("HEAD", "/v2/o/image/manifests/v1"),
        ("GET", "/token"),
        ("HEAD", "/v2/o/image/manifests/v1"),
    ]


def test_a_digest_that_no_header_tells_is_computed() -> None:
    with served(lambda *_: (200, {}, INDEX)) as (host, asked):
        found = registry.digest(registry.parse(f"{host}/image:v1"), {})
    assert found == "sha256:" + hashlib.sha256(INDEX).hexdigest()
    assert [method for method, _, _ in asked] == ["HEAD", "GET"]


def test_a_token_stays_with_its_registry() -> None:
    def elsewhere(question: Asked, _: str) -> Answer:
        assert "Authorization" not in question[2]
        return 200, {"Docker-Content-Digest": DIGEST}, b""

    with served(elsewhere) as (other, asked):

        def moved(question: Asked, host: str) -> Answer:
            answer = guarded(question, host)
            if answer[0] == 200 and question[1].startswith("/v2/"):
                return 307, {"Location": f"http://{other}{question[1]}"}, b""
            return answer

        with served(moved) as (host, _):
            assert registry.digest(registry.parse(f"{host}/o/image:v1"), {}) == DIGEST
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ((404, {}, b"{}"), r"found no .*/o/image:v1 at .*; fix: correct its tag"),
        ((403, {}, b"{}"), r"without a login \(403\); wanted a public image"),
        ((401, {"WWW-Authenticate": 'Basic realm="r"'}, b"{}"), r"without a login \(401\)"),
        ((429, {"Retry-After": "60"}, b"{}"), r"found a rate limit .*; fix: try again in 60 s"),
        ((429, {}, b"{}"), r"fix: try again in some hours"),
        ((503, {}, b"{}"), r"answering 503 for"),
        ((200, {"Docker-Content-Digest": "md5:1"}, b""), r"found digest 'md5:1'"),
        (
            (401, {"WWW-Authenticate": 'Bearer realm="http://example.com/t"'}, b""),
            r"asking for a login at 'http://example.com/t'; wanted https",
        ),
    ],
)
def test_a_refusal_is_one_line(answer: Answer, line: str) -> None:
    with served(lambda *_: answer) as (host, _), pytest.raises(StackError, match=line) as error:
        registry.digest(registry.parse(f"{host}/o/image:v1"), {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", json.dumps({"token": ""}).encode()])
def test_a_token_that_does_not_come(body: bytes) -> None:
    def script(question: Asked, host: str) -> Answer:
        return (200, {}, body) if "/token" in question[1] else guarded(question, host)

    with served(script) as (host, _), pytest.raises(StackError, match="found no token from"):
        registry.digest(registry.parse(f"{host}/o/image:v1"), {})


def test_no_network_is_one_line() -> None:
    image = registry.parse("127.0.0.1:9/image:v1")  # the discard port: nothing listens
    with pytest.raises(StackError, match=r"no answer from 127.0.0.1:9 .*refused.*HTTPS_PROXY"):
        registry.digest(image, {})


@pytest.mark.parametrize(
    ("text", "host", "path", "tag"),
    [
        ("nginx:1.30.4", registry.HUB, "library/nginx", "1.30.4"),
        ("nginx", registry.HUB, "library/nginx", "latest"),
        ("vllm/vllm-openai:v0.33.0", registry.HUB, "vllm/vllm-openai", "v0.33.0"),
        ("docker.io/nginx:1", registry.HUB, "library/nginx", "1"),
        ("ghcr.io/o/i:t", "ghcr.io", "o/i", "t"),
        ("localhost:5000/x", "localhost:5000", "x", "latest"),
        ("registry.local:5000/a/b/c_d:1.0-x", "registry.local:5000", "a/b/c_d", "1.0-x"),
    ],
)
def test_where_an_image_lies(text: str, host: str, path: str, tag: str) -> None:
    image = registry.parse(text)
    assert (image.host, image.path, image.tag) == (host, path, tag)


@pytest.mark.parametrize("text", ["", "UPPER/case:1", "a b", "x:", "x@sha256:12", "../x:1", "-x:1"])
def test_what_is_no_image(text: str) -> None:
    with pytest.raises(StackError, match=r"wanted NAME:TAG"):
        registry.parse(text)


def test_plain_http_is_for_this_host_alone() -> None:
    for host in ("localhost:5000", "127.0.0.1:5000", "127.8.8.8"):
        assert registry.parse(f"{host}/x").base == f"http://{host}"
    for host in ("registry.local:5000", "10.0.0.1:5000", "ghcr.io"):
        assert registry.parse(f"{host}/x").base == f"https://{host}"


@pytest.mark.parametrize(
    ("no_proxy", "host", "used"),
    [
        ("", "ghcr.io", True),
        ("example.com", "ghcr.io", True),
        ("io", "ghcr.io", False),
        ("hcr.io", "ghcr.io", True),
        (".corp, ghcr.io", "ghcr.io:443", False),
        ("*", "ghcr.io", False),
        ("", "127.0.0.1:5000", False),
    ],
)
def test_the_proxy_of_env(no_proxy: str, host: str, used: bool) -> None:
    settings = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy}
    assert registry.proxy(host, settings) == ({"https": "http://proxy:3128"} if used else {})
