"""Why each other route of vLLM is not in the table. Nothing reads this while the gateway runs.

tests/data/vllm_routes has, for each vLLM that the stack supports, every route it can register. Each
must be forwarded by table.py or stand here: a new vLLM brings a new list, and its new routes fail a
test until somebody has decided (docs/routes.md).
"""

from __future__ import annotations

from types import MappingProxyType

_REASONS = {
    "answered by the gateway, from what its own probes saw": """
        GET /health
        GET /v1/models""",
    "for the operator's monitoring on the internal network": """
        ANY /metrics
        GET /metrics
        GET /load
        GET /version
        GET /kv_event_sources
        GET /ready
        GET /readyz
        GET /fault_tolerance/status""",
    "tells how the server is set up": """
        ANY /static
        GET /docs
        GET /docs/oauth2-redirect
        GET /redoc
        GET /openapi.json
        GET /server_info
        GET /tokenizer_info
        GET /weight_info
        GET /get_world_size""",
    "SageMaker's names: /invocations would be every route under one path": """
        GET /ping
        POST /ping
        POST /invocations
        POST /adapters
        DELETE /adapters/{adapter_name}""",
    "controls the engine: stops, empties or changes it for everybody": """
        GET /is_paused
        GET /is_sleeping
        POST /pause
        POST /resume
        POST /sleep
        POST /wake_up
        POST /release_kv_cache_memory
        POST /reset_prefix_cache
        POST /reset_mm_cache
        POST /reset_encoder_cache
        POST /start_profile
        POST /stop_profile
        POST /scale_elastic_ep
        POST /is_scaling_elastic_ep
        POST /fault_tolerance/apply
        POST /abort_requests
        POST /inference/v1/abort_requests""",
    "runs code or replaces weights inside the engine": """
        POST /collective_rpc
        POST /init_weight_transfer_engine
        POST /shutdown_weight_transfer_engine
        POST /start_weight_update
        POST /start_draft_weight_update
        POST /update_weights
        POST /update_weight_version
        POST /finish_weight_update
        POST /weight_checker
        POST /v1/load_lora_adapter
        POST /v1/unload_lora_adapter""",
    "stored responses stay off until they belong to a key": """
        GET /v1/responses/{response_id}
        POST /v1/responses/{response_id}/cancel""",
    "one request that is many: a slot and a limit count one": """
        POST /v1/chat/completions/batch
        POST /generative_scoring""",
    "half of a generation, for engines split over machines; its tokens could not be counted": """
        POST /v1/chat/completions/render
        POST /v1/chat/completions/derender
        POST /v1/completions/render
        POST /v1/completions/derender
        POST /v1/responses/render
        POST /v1/messages/render
        POST /cohere/v2/chat/render
        POST /inference/v1/generate
        POST /generate""",
    "vLLM's own way to ask, not one of the APIs that this stack offers": """
        POST /pooling
        POST /classify
        POST /v1/systemone
        POST /v1/decisions""",
    "Cohere's API, whose errors have yet another form": """
        POST /cohere/v2/chat
        POST /v2/embed
        POST /v2/rerank""",
    "another name for a path under /v1": """
        POST /score
        POST /rerank""",
    "a WebSocket, which this stack does not speak": """
        WEBSOCKET /v1/realtime""",
}

# "METHOD /path" → why a client cannot reach it.
DENIED = MappingProxyType(
    {
        " ".join(line.split()): reason
        for reason, lines in _REASONS.items()
        for line in lines.strip().splitlines()
    }
)
