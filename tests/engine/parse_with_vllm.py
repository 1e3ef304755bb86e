"""Run by the engine's Python: reads a JSON list of argument lists, parses each with vLLM's own
parser, and prints for each what it made of it, or why it refused it; and which parsers of tool
calls and of reasoning it knows."""

import contextlib
import io
import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

FIELDS = (
    "model", "model_tag", "served_model_name", "host", "port", "tensor_parallel_size",
    "gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
    "kv_cache_dtype", "quantization", "enable_prefix_caching", "tool_call_parser",
    "enable_auto_tool_choice", "reasoning_parser", "api_server_count", "dtype", "enforce_eager",
    "kv_cache_memory_bytes", "shutdown_timeout", "disable_uvicorn_access_log", "seed",
    "chat_template", "revision", "optimization_level", "cudagraph_capture_sizes",
    "max_cudagraph_capture_size", "data_parallel_size", "pipeline_parallel_size", "tokenizer_mode",
)  # fmt: skip


def parsed(parser: FlexibleArgumentParser, words: list[str]) -> dict[str, object]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = parser.parse_args(words)
            validate_parsed_serve_args(found)
    except (SystemExit, ValueError, TypeError, KeyError) as error:
        return {"error": said.getvalue().strip().splitlines()[-1:] or [str(error)]}
    values = {field: getattr(found, field, None) for field in FIELDS}
    with contextlib.suppress(TypeError, ValueError):  # vLLM reads it when it makes its config
        values["optimization_level"] = int(found.optimization_level)
    config = found.compilation_config
    mode = getattr(config, "mode", None)
    graphs = getattr(config, "cudagraph_mode", None)
    return {
        **values,
        "mode": getattr(mode, "name", mode),
        "cudagraph_mode": getattr(graphs, "name", graphs),
        "config_sizes": getattr(config, "cudagraph_capture_sizes", None),
        "config_largest": getattr(config, "max_cudagraph_capture_size", None),
    }


def main() -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    options = sorted({text for action in parser._actions for text in action.option_strings})
    results = [parsed(parser, words) for words in json.load(sys.stdin)]
    known = {
        "options": options,
        "tools": ToolParserManager.list_registered(),
        "reasoning": ReasoningParserManager.list_registered(),
    }
    json.dump({**known, "results": results}, sys.stdout, default=str)


main()
