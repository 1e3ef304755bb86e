"""The one list of what a client can ask for under /v1. Pure data.

`ENGINE_ROUTES` go to an engine, `OWN_ROUTES` are answered here. A path that is in neither does not
exist: 404, never forwarded. denied.py says why each other route of vLLM is not here, and a test
holds both against the routes that each supported vLLM can register.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.forms import Api, Ending

BodyKind = Literal["json", "multipart"]


@dataclass(frozen=True, slots=True)
class EngineRoute:
    """POST `path` is sent to `engine_path`, a constant: never the client's bytes.

    `ending`: how a stream ends (forms.py). `generates`: its tokens count; the others only
    use the tokenizer. `queries`: the query strings that go along; any other is dropped.
    """

    path: str
    engine_path: bytes
    ending: Ending = "plain"
    api: Api = "openai"
    body: BodyKind = "json"
    generates: bool = True
    queries: frozenset[bytes] = frozenset()

    def target(self, query: bytes) -> bytes:
        """The request target for an engine, from the query string of the client."""
        return b"%b?%b" % (self.engine_path, query) if query in self.queries else self.engine_path


# Anthropic's clients ask for their beta endpoints so. Nothing else in a query means anything here,
# and a key in one would be in somebody's log.
_BETA = frozenset({b"beta=true"})

ENGINE_ROUTES = (
    EngineRoute("/v1/chat/completions", b"/v1/chat/completions", "chat"),
    EngineRoute("/v1/completions", b"/v1/completions", "chat"),
    EngineRoute("/v1/responses", b"/v1/responses", "responses"),
    EngineRoute("/v1/messages", b"/v1/messages", "messages", "anthropic", queries=_BETA),
    EngineRoute(
        "/v1/messages/count_tokens",
        b"/v1/messages/count_tokens",
        api="anthropic",
        generates=False,
        queries=_BETA,
    ),
    EngineRoute("/v1/embeddings", b"/v1/embeddings"),
    EngineRoute("/v1/score", b"/v1/score"),
    EngineRoute("/v1/rerank", b"/v1/rerank"),
    # The engine has these two at its root, outside of what its own key would protect.
    EngineRoute("/v1/tokenize", b"/tokenize", generates=False),
    EngineRoute("/v1/detokenize", b"/detokenize", generates=False),
    # With stream=true in the form their chunks have choices and end with [DONE].
    EngineRoute("/v1/audio/transcriptions", b"/v1/audio/transcriptions", "chat", body="multipart"),
    EngineRoute("/v1/audio/translations", b"/v1/audio/translations", "chat", body="multipart"),
)

# Answered from what the engines were last seen to serve; an id may have any slashes.
OWN_ROUTES = (("GET", "/v1/models"), ("GET", "/v1/models/{id}"))
