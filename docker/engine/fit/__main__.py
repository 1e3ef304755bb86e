"""`python3 -m fit MODEL [--gpu …] [--tp N] [--context N] [--concurrency N] [--json]`.

What is not given comes from the environment, as the launcher reads it. Exit codes: 0 it fits, 1 it
does not, 2 bad input, 3 it can't be told for want of a network.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from launcher.model import tokenfile
from launcher.model.fetcherror import FetchError
from launcher.options import uncounted, values
from launcher.options.argv import CPU_KV_CACHE_BYTES
from launcher.options.settings import Settings, SettingsError, load
from launcher.options.values import BadValueError

from fit import answer, cpu, gpus, hubread, plans, remedy, source
from fit.asked import context, question
from fit.gpus import Gpu, GpuError
from fit.judge import Model
from fit.shape import ShapeError, read
from fit.source import SourceError

FITS, DOES_NOT, BAD_INPUT, UNKNOWN = 0, 1, 2, 3
# Options that stand for a setting, which they override.
SETTINGS = {
    "model": "MODEL",
    "revision": "MODEL_REVISION",
    "tp": "TENSOR_PARALLEL_SIZE",
    "context": "MAX_MODEL_LEN",
    "utilization": "GPU_MEMORY_UTILIZATION",
    "kv_cache_dtype": "KV_CACHE_DTYPE",
    "quantization": "QUANTIZATION",
    "max_num_seqs": "MAX_NUM_SEQS",
    "max_num_batched_tokens": "MAX_NUM_BATCHED_TOKENS",
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="fit", description="Does this model fit?")
    made.add_argument("model", metavar="MODEL", help="a hub id or a folder")
    made.add_argument("--revision", help="branch, tag or commit on the hub")
    made.add_argument("--gpu", help="h200, l40s, 24GB, h100x8, a plan; default: this host's")
    made.add_argument("--tp", help="GPUs one engine spans (TENSOR_PARALLEL_SIZE)")
    made.add_argument("--context", help="tokens of a request, prompt and answer; or auto")
    made.add_argument("--concurrency", type=_count, default=1, help="requests of that context")
    made.add_argument("--utilization", help="share of the GPU's memory (GPU_MEMORY_UTILIZATION)")
    made.add_argument("--kv-cache-dtype", help="such as fp8")
    made.add_argument("--quantization", help="of the weights at load time, such as fp8")
    made.add_argument("--max-num-seqs", help="sequences in one batch")
    made.add_argument("--max-num-batched-tokens", help="tokens in one step")
    made.add_argument("--json", action="store_true")
    return made


def _count(text: str) -> int:
    try:
        return values.whole_number(1, 1_000_000, fix="write for example 8")(text)
    except BadValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    args = parser().parse_args(arguments)
    try:
        settings = load(with_options(args, environ))
        model = read_model(settings, environ)
        return _answer(args, settings, model)
    except SettingsError as error:
        return _said("\n".join(error.lines), BAD_INPUT)
    except SourceError as error:
        return _said(str(error), UNKNOWN if error.untold else BAD_INPUT)
    except ShapeError as error:
        return _said(str(error), UNKNOWN)
    except (GpuError, FetchError) as error:
        return _said(str(error), BAD_INPUT)


def _said(lines: str, code: int) -> int:
    sys.stderr.write(lines + "\n")
    return code


def with_options(args: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with what the options say instead."""
    given = {SETTINGS[name]: value for name, value in vars(args).items() if name in SETTINGS}
    return {**environ, **{name: value for name, value in given.items() if value is not None}}


def read_model(settings: Settings, environ: Mapping[str, str]) -> Model:
    """Config and size of the model. Raises SourceError, ShapeError, FetchError."""
    wanted = settings.model
    if wanted.startswith(("/", "./", "../", "~/")):
        found = source.folder(Path(wanted).expanduser())
    elif wanted == "auto":
        raise SourceError(
            "MODEL: found auto, which is chosen to fit; wanted a model to judge; fix: name one, for"
            " example Qwen/Qwen2.5-7B-Instruct"
        )
    else:
        found = source.hub(wanted, settings.model_revision, _hub(environ))
    return Model(
        name=found.name, shape=read(found.config), file_bytes=found.file_bytes,
        wide_bytes=found.wide_bytes,
    )  # fmt: skip


def _hub(environ: Mapping[str, str]) -> hubread.Hub:
    path = environ.get("HF_TOKEN_PATH", "").strip()
    token = tokenfile.read(Path(path)) if path else None
    try:
        return hubread.client(environ.get("HF_ENDPOINT", "").strip() or None, token)
    except hubread.HubError as error:
        raise SourceError(str(error)) from error


def _answer(args: argparse.Namespace, settings: Settings, model: Model) -> int:
    if settings.device == "cpu" and args.gpu is None:
        room = cpu.Room(cpu.memory(), CPU_KV_CACHE_BYTES)
        found = cpu.judge(model, room, context(settings), args.concurrency)
        found["not_counted"] = _not_counted(settings)
        return _tell(args.json, found, lambda: [f"{'fits' if found['fits'] else 'does not fit'}:"
                                                f" {found['reason']}"])  # fmt: skip
    table = plans.load()
    here = next(iter(gpus.here()), None) if args.gpu is None else None
    card = here if args.gpu is None else gpus.named(args.gpu, table)
    asked = question(settings, card or _largest(table), args.concurrency)
    result = remedy.judge(model, asked)
    cheapest = answer.plans_that_do(model, asked, table)
    told = answer.as_json(model, result, cheapest, table)
    told["not_counted"] = _not_counted(settings)
    if card is None:
        told |= {"fits": bool(cheapest), "reason": _by_plans(cheapest), "gpu": None}
    return _tell(
        args.json,
        told,
        lambda: list(answer.lines(model, result, cheapest, table, only_plans=card is None)),
    )


def _not_counted(settings: Settings) -> list[str]:
    return list(uncounted.any_of(settings.extra_args))


def _tell(as_json: bool, found: Mapping[str, object], lines: Callable[[], list[str]]) -> int:
    missed = found["not_counted"]
    if missed and isinstance(missed, list):
        sys.stderr.write(f"note: VLLM_EXTRA_ARGS has {', '.join(missed)}, not counted here\n")
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if as_json else "\n".join(lines()) + "\n")
    return FITS if found["fits"] else DOES_NOT


def _by_plans(cheapest: list[dict[str, object]]) -> str:
    if cheapest:
        return f"no GPU here and none named; the cheapest plan that does: {cheapest[0]['slug']}"
    return "found no plan it fits on; wanted one; fix: a smaller or quantised MODEL"


def _largest(table: plans.Table) -> Gpu:
    """To compute sizes with, where there is no GPU to judge."""
    plan = max(table.plans, key=lambda one: one.gpu_mib * one.gpus)
    return Gpu(plan.gpu, plan.gpu_mib * gpus.MIB, plan.gpus)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
