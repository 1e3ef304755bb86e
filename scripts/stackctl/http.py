"""Small HTTP calls to our own nginx on this host; never through a proxy."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """`status` 0: nothing answered, and `body` says why."""

    status: int
    body: Mapping[str, Any]

    @property
    def reason(self) -> str:
        """The message of an error answer."""
        error = self.body.get("error")
        if isinstance(error, Mapping):
            return str(error.get("message", error))
        return str(self.body.get("message") or f"HTTP {self.status}")


def get(url: str, path: str, timeout: float = 5.0) -> Answer:
    return _call("GET", url, path, None, {}, timeout)


def post(url: str, path: str, body: object, key: str | None, timeout: float) -> Answer:
    return _call("POST", url, path, body, _headers(key), timeout)


def _headers(key: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers


def _call(
    method: str, url: str, path: str, body: object, headers: Mapping[str, str], timeout: float
) -> Answer:
    payload = None if body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        connection.request(method, path, payload, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, _json(response.read()))
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, {"message": str(error) or type(error).__name__})
    finally:
        connection.close()


def _json(data: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(data)
    except ValueError:
        return {"message": data[:200].decode("utf-8", "replace")}
    return parsed if isinstance(parsed, dict) else {"message": str(parsed)}


@contextmanager
def event_stream(
    url: str, path: str, body: object, key: str | None, timeout: float
) -> Iterator[tuple[int, Iterator[str]]]:
    """POST and read the answer line by line: (status, lines). Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body).encode(), _headers(key))
        response = connection.getresponse()
        yield response.status, (line.decode("utf-8", "replace").rstrip("\r\n") for line in response)
    finally:
        connection.close()
