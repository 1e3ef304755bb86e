"""Run by the engine's Python: builds vLLM's application for every task and with everything that is
off by default, without a model, and prints its version and the routes that it then has."""

import json
import os
import sys

os.environ.update(
    VLLM_SERVER_DEV_MODE="1",
    VLLM_ALLOW_RUNTIME_LORA_UPDATING="1",
    VLLM_ENABLE_COHERE_API="1",
    VLLM_ENABLE_RESPONSES_API_STORE="1",
)

from vllm import __version__
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.tasks import FRONTEND_TASKS, GENERATION_TASKS, POOLING_TASKS
from vllm.utils.argparse_utils import FlexibleArgumentParser

KINDS = {"APIWebSocketRoute": ["WEBSOCKET"], "Mount": ["ANY"]}


def main() -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    args = parser.parse_args(["--model", "none", "--enable-tokenizer-info-endpoint"])
    app = build_app(args, (*GENERATION_TASKS, *POOLING_TASKS, *FRONTEND_TASKS))
    found = {
        f"{method} {route.path}"
        for route in app.routes
        for method in getattr(route, "methods", None) or KINDS[type(route).__name__]
        if method != "HEAD"  # comes with a GET
    }
    json.dump({"version": __version__, "routes": sorted(found)}, sys.stdout)


main()
