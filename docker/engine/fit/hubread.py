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
    403: "a gated model whose terms are not accepted; wanted access; fix: accept them on its page,"
    " with the account whose token is in secrets/hf_token",
    404: "no such model or revision on the hub (a private one looks the same without a token);"
    " wanted an id as its page shows it; fix: correct MODEL or MODEL_REVISION",
    429: "the hub limiting this address (429); wanted an answer; fix: try again in a few minutes,"
    " or put a token into secrets/hf_token",
}

# The header tells more than the status: a gated model may come as 401 or 403.
CODES = {"GatedRepo": 403, "RepoNotFound": 404, "RevisionNotFound": 404}


class HubError(Exception):
    """One line. `unreachable`: no answer at all, or no such file in a repository that is there.
    `status`: the hub's."""

    def __init__(self, line: str, *, unreachable: bool = False, status: int = 0) -> None:
        super().__init__(line)
        self.unreachable = unreachable
        self.status = status


@dataclass(frozen=True)
class Listing:
    """A repository's files, name → bytes, and how many bytes of its weights are float32."""

    sizes: dict[str, int]
    wide_bytes: int


@dataclass(frozen=True)
class Hub:
    """`endpoint`: HF_ENDPOINT or the hub itself. `timeout_s`: of each request."""

    endpoint: str
    token: str | None
    timeout_s: float = 10.0

    def listing(self, model: str, revision: str | None) -> Listing:
        """The files. Raises HubError."""
        where = f"/revision/{_quoted(revision)}" if revision else ""
        answer = self._json(f"/api/models/{_quoted(model)}{where}?blobs=true", model)
        files = answer.get("siblings") if isinstance(answer, dict) else None
        named = [file for file in files or [] if isinstance(file, dict)]
        sizes = {str(file.get("rfilename")): int(file.get("size") or 0) for file in named}
        return Listing(sizes, _wide_bytes(answer))

    def file(self, model: str, revision: str | None, name: str) -> bytes:
        """The bytes of a small file of a repository that was listed. Raises HubError."""
        at = _quoted(revision or "main")
        try:
            return self._get(f"/{_quoted(model)}/resolve/{at}/{name}", model)
        except HubError as error:
            if error.status != 404:
                raise
            raise HubError(
                f"MODEL: found no {name} in {model}; wanted a model in Hugging Face form, whose"
                " size can be told; fix: none needed where vLLM runs it",
                unreachable=True,
            ) from error

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
            named = error.headers.get("X-Error-Code", "")
            raise self._refused(CODES.get(named, error.code), model) from error
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
            return HubError(f"MODEL: {model}: found {REFUSALS[status]}", status=status)
        line = f"hub: found status {status} from {self.endpoint}; wanted 200; fix: try again later"
        return HubError(line, unreachable=status >= 500)


def _wide_bytes(answer: Any) -> int:  # noqa: ANN401 - whatever the hub sends
    """The hub counts the parameters of each type in a repository's safetensors files."""
    found = answer.get("safetensors") if isinstance(answer, dict) else None
    counts = found.get("parameters") if isinstance(found, dict) else None
    wide = counts.get("F32") if isinstance(counts, dict) else None
    return 4 * wide if isinstance(wide, int) else 0


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
