"""Two questions to the Hugging Face hub: a model's config and its files' sizes.

With the standard library, since the host's Python has no huggingface_hub.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

DEFAULT = "https://huggingface.co"
LARGEST = 16 * 2**20  # bytes of an answer
# 401 is what the hub answers for a name that does not exist, too.
REFUSALS = {
    401: "a model that does not exist, or a private or gated one and no valid token; wanted access;"
    " fix: check its name, accept its terms on its page, put a token into secrets/hf_token",
    403: "a gated model whose terms this token has not accepted; wanted access; fix: accept them"
    " on its page, with the account of secrets/hf_token",
    404: "no such model or revision on the hub; wanted an id as its page shows it; fix: correct"
    " MODEL or MODEL_REVISION",
    429: "the hub limiting this address (429); wanted an answer; fix: try again in a few minutes,"
    " or put a token into secrets/hf_token",
}


class HubError(Exception):
    """One line. `unreachable`: no answer at all."""

    def __init__(self, line: str, *, unreachable: bool = False) -> None:
        super().__init__(line)
        self.unreachable = unreachable


@dataclass(frozen=True)
class Hub:
    """`endpoint`: HF_ENDPOINT or the hub itself. `timeout_s`: of each request."""

    endpoint: str
    token: str | None
    timeout_s: float = 10.0

    def sizes(self, model: str, revision: str | None) -> dict[str, int]:
        """File name → bytes. Raises HubError."""
        where = f"/revision/{_quoted(revision)}" if revision else ""
        answer = self._json(f"/api/models/{_quoted(model)}{where}?blobs=true", model)
        files = answer.get("siblings") if isinstance(answer, dict) else None
        named = [file for file in files or [] if isinstance(file, dict)]
        return {str(file.get("rfilename")): int(file.get("size") or 0) for file in named}

    def config(self, model: str, revision: str | None) -> bytes:
        """The bytes of config.json. Raises HubError."""
        at = _quoted(revision or "main")
        return self._get(f"/{_quoted(model)}/resolve/{at}/config.json", model)

    def _json(self, path: str, model: str) -> Any:  # noqa: ANN401 - whatever the hub sends
        try:
            return json.loads(self._get(path, model))
        except ValueError as error:
            raise HubError(
                f"MODEL: found an answer of {self.endpoint} that is no JSON; wanted the hub's API;"
                " fix: correct HF_ENDPOINT"
            ) from error

    def _get(self, path: str, model: str) -> bytes:
        request = urllib.request.Request(self.endpoint.rstrip("/") + path)  # noqa: S310 - checked
        request.add_header("User-Agent", "vllm-compose")
        if self.token:  # not sent on to where a redirect leads, a CDN
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:  # noqa: S310
                body: bytes = answer.read(LARGEST)
        except urllib.error.HTTPError as error:
            raise self._refused(error.code, model) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise HubError(
                f"hub: found no answer from {self.endpoint} ({reason}); wanted the size of {model};"
                " fix: check the network, or HF_ENDPOINT",
                unreachable=True,
            ) from error
        return body

    def _refused(self, status: int, model: str) -> HubError:
        if status in REFUSALS:
            return HubError(f"MODEL: {model}: found {REFUSALS[status]}")
        line = f"hub: found status {status} from {self.endpoint}; wanted 200; fix: try again later"
        return HubError(line, unreachable=status >= 500)


def client(endpoint: str | None, token: str | None) -> Hub:
    """A client. Raises HubError for an endpoint that is no web address."""
    address = endpoint or DEFAULT
    if not address.startswith(("https://", "http://")):
        raise HubError(
            f"HF_ENDPOINT: found {address!r}; wanted an address that begins with https://;"
            " fix: correct it, or leave it empty"
        )
    return Hub(address, token)


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="/")
