"""The names that may stand in .env (design: any other name is an error). Imports nothing.

A test holds these lists to .env.example, to the launcher's settings and to the gateway's.
"""

import difflib

LAUNCHER = (
    "MODEL",
    "MODEL_REVISION",
    "SERVED_MODEL_NAME",
    "TENSOR_PARALLEL_SIZE",
    "GPU_MEMORY_UTILIZATION",
    "MAX_MODEL_LEN",
    "MAX_NUM_SEQS",
    "MAX_NUM_BATCHED_TOKENS",
    "KV_CACHE_DTYPE",
    "QUANTIZATION",
    "ENABLE_PREFIX_CACHING",
    "TOOL_CALL_PARSER",
    "REASONING_PARSER",
    "API_SERVER_COUNT",
    "REQUIRE_CUDA_GRAPHS",
    "COMPILATION_CONFIG",
    "VLLM_EXTRA_ARGS",
)
GATEWAY_TUNABLE = (
    "GATEWAY_USAGE_DB",
    "GATEWAY_MAX_BODY_BYTES",
    "GATEWAY_MAX_CONCURRENCY",
    "GATEWAY_QUEUE_SIZE",
    "GATEWAY_QUEUE_TIMEOUT_S",
    "GATEWAY_HOLD_S",
    "GATEWAY_FIRST_BYTE_TIMEOUT_S",
    "GATEWAY_IDLE_TIMEOUT_S",
    "GATEWAY_HEARTBEAT_S",
    "GATEWAY_DRAIN_S",
    "GATEWAY_CORS_ORIGINS",
    "GATEWAY_LOG_LEVEL",
)
# The stack decides these itself; of .env only GATEWAY_WORKERS is read, by compose/workers.yml.
GATEWAY_WIRING = (
    "GATEWAY_HOST",
    "GATEWAY_PORT",
    "GATEWAY_WORKERS",
    "GATEWAY_VALKEY_URL",
    "GATEWAY_UPSTREAMS",
    "GATEWAY_STATUS_URLS",
    "GATEWAY_API_KEYS_FILE",
)
GATEWAY = GATEWAY_WIRING + GATEWAY_TUNABLE
STACK = ("STACK_MODE", "NGINX_BIND", "NGINX_PORT", "VLLM_IMAGE", "HF_ENDPOINT", "TORCH_CPU_INDEX")
# For one start alone: `up --debug` sets it, no file and no shell may.
DEBUG = "ENGINE_DEBUG"
PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
PROXIES = PROXY + tuple(name.lower() for name in PROXY)
DOCUMENTED = LAUNCHER + STACK + GATEWAY + ("COMPOSE_FILE",)


def is_known(name: str) -> bool:
    return name in DOCUMENTED or name in PROXIES or name.startswith("COMPOSE_")


def nearest(name: str) -> str | None:
    """The known name most like `name`, if any is close."""
    found = difflib.get_close_matches(name.upper(), DOCUMENTED, n=1, cutoff=0.6)
    return found[0] if found else None
