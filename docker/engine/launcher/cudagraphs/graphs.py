"""Settings that leave vLLM without CUDA graphs, found before it starts. Pure.

What is judged is what vLLM 0.24 to 0.33 makes of its settings (there: config/vllm.py,
config/compilation.py and utils/argparse_utils.py). What only the workers decide is proven by them:
launcher.cudagraphs.proof.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.options import flags
from launcher.options.given import ConfigFile, Given, last, read

# torch reads them by itself. No kin: PYTORCH_JIT (TorchScript alone), VLLM_USE_V2_MODEL_RUNNER,
# VLLM_USE_AOT_COMPILE and VLLM_USE_STANDALONE_COMPILE (another way to the same graphs).
ENVIRONMENT = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
OVERRIDE = "TORCH_COMPILE_OVERRIDE_BACKENDS"  # another backend than vLLM's cuts no pieces
MODES = {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "DYNAMO_TRACE_ONCE": 2, "VLLM_COMPILE": 3}
GRAPH_MODES = {0: "NONE", 1: "PIECEWISE", 2: "FULL"}
NEED_PIECES = ("PIECEWISE", "FULL_AND_PIECEWISE")
TAKE_OUT = "take it out"
NO_GRAPHS = "leaves vLLM without CUDA graphs (measured 5.6 times slower at one stream)"
NO_PIECES = "turns off the compiling that vLLM's CUDA graphs are made with"


@dataclass(frozen=True)
class Finding:
    """One setting that costs the CUDA graphs: `VARIABLE: found …`, what to do, what it does."""

    found: str
    fix: str = TAKE_OUT
    does: str = NO_GRAPHS


@dataclass(frozen=True)
class _Config:
    """vLLM's compilation config as it will be read, and where it stands."""

    values: Mapping[str, object]
    found: str


def refusal(finding: Finding) -> str:
    """The line for an operator who requires graphs."""
    return (
        f"{finding.found}, which {finding.does}; wanted graphs, since REQUIRE_CUDA_GRAPHS is true;"
        f" fix: {finding.fix}, or set REQUIRE_CUDA_GRAPHS=false to run without them"
    )


def ruled_out(
    config: Mapping[str, object] | None,
    arguments: tuple[str, ...],
    environ: Mapping[str, str],
    file: ConfigFile | None = None,
) -> tuple[Finding, ...]:
    """Every setting that leaves no CUDA graph; empty where nothing is known to.

    config: COMPILATION_CONFIG; arguments: VLLM_EXTRA_ARGS; file: what a --config there holds.
    """
    given = read(arguments, file)
    effective = _config(config, given)
    return (
        *_eager(given),
        *_modes(effective, given, environ),
        *_sizes(effective, given),
        *_all_to_all(given),
        *_environment(environ),
    )


def _config(variable: Mapping[str, object] | None, given: list[Given]) -> _Config:
    """Dotted parts (compilation_config.mode: 0) replace whatever else is given, being added last;
    else the command line's counts, which is COMPILATION_CONFIG; else the file's."""
    named = [each for each in given if flags.is_given([each.flag], "compilation-config")]
    dotted = {each.flag.key: _json(each) for each in named if each.flag.key}
    if dotted:
        return _Config(dotted, named[-1].found.removesuffix("." + named[-1].flag.key))
    if variable is not None:
        return _Config(variable, "COMPILATION_CONFIG: found")
    whole = _json(named[-1]) if named else None
    return _Config(whole, named[-1].found) if isinstance(whole, dict) else _Config({}, "")


def _json(given: Given) -> object:
    text = " ".join(given.words)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _eager(given: list[Given]) -> list[Finding]:
    flag = last(given, "enforce-eager")
    return [Finding(flag.found)] if flag and not flag.flag.negated else []


def _modes(config: _Config, given: list[Given], environ: Mapping[str, str]) -> list[Finding]:
    """The two modes as vLLM resolves them: what is written, else what the level stands for."""
    flag = last(given, "optimization-level")
    level = _number(" ".join(flag.words)) if flag else None
    graph_mode = _graph_mode(config.values, level)
    # What the config itself says counts more than the level: -O0 stands for NONE twice.
    unsaid = [key for key in ("mode", "cudagraph_mode") if config.values.get(key) is None]
    pieces = graph_mode in NEED_PIECES and not _breakable(environ)
    if flag and level == 0 and ("cudagraph_mode" in unsaid or ("mode" in unsaid and pieces)):
        return [Finding(f"{flag.found} (level 0)", "take it out, or write -O1 or higher")]
    if graph_mode == "NONE":
        return [_of_config(config, "cudagraph_mode")]
    if graph_mode == "PIECEWISE" and config.values.get("splitting_ops") == []:
        return [_of_config(config, "splitting_ops")]
    return _compile_mode(config, graph_mode, environ)


def _graph_mode(values: Mapping[str, object], level: int | None) -> str:
    value = values.get("cudagraph_mode")
    if value is None:
        return "PIECEWISE" if level == 1 else "FULL_AND_PIECEWISE"
    number = _number(value)
    return str(value).strip().upper() if number is None else GRAPH_MODES.get(number, "")


def _compile_mode(config: _Config, graph_mode: str, environ: Mapping[str, str]) -> list[Finding]:
    """Without vLLM's own compile mode there are no pieces: 0.24 then captures nothing, later ones
    no prefill. A model compiled by stock torch.compile gets no graph in any of them. Breakable
    graphs need no compiling."""
    value = config.values.get("mode")
    if value is None or _breakable(environ):
        return []
    number = _number(value)
    mode = MODES.get(str(value).strip().upper(), 3) if number is None else number
    if mode == 1:
        return [_of_config(config, "mode", "take it out, since 3 is vLLM's own default")]
    if mode != 3 and graph_mode in NEED_PIECES:
        fix = 'take it out, or add "cudagraph_mode":"FULL_DECODE_ONLY"'
        return [_of_config(config, "mode", fix)]
    return []


def _breakable(environ: Mapping[str, str]) -> bool:
    return environ.get("VLLM_USE_BREAKABLE_CUDAGRAPH", "").strip() == "1"


def _of_config(config: _Config, key: str, fix: str = TAKE_OUT) -> Finding:
    return Finding(f"{config.found} {key} {config.values.get(key)!r}", fix)


def _number(value: object) -> int | None:
    """vLLM takes 0, 0.0, false and "0" where it wants a number."""
    try:
        return int(float(value)) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _sizes(config: _Config, given: list[Given]) -> list[Finding]:
    fix = "take it out, or name sizes such as 1 2 4 8"
    found = []
    for key in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
        value = config.values.get(key)
        if value is not None and not _has_size(value):
            found.append(_of_config(config, key, fix))
        flag = last(given, key.replace("_", "-"))
        if flag and flag.words and not _has_size(list(flag.words)):
            found.append(Finding(f"{flag.found} {' '.join(flag.words)[:40]}", fix))
    return found


def _has_size(value: object) -> bool:
    sizes = value if isinstance(value, list) else [value]
    # What is no number at all is vLLM's to refuse.
    return any((_number(size) or 0) > 0 or _number(size) is None for size in sizes)


def _all_to_all(given: list[Given]) -> list[Finding]:
    """Expert-parallel back-ends whose kernels no graph can hold; vLLM turns graphs off for them."""
    flag = last(given, "all2all-backend")
    ranks = [each for each in given if each.flag.name in ("data-parallel-size", "-dp")]
    parallel = bool(ranks) and (_number(" ".join(ranks[-1].words)) or 1) > 1
    if flag and parallel and flag.words[:1] in (("deepep_high_throughput",), ("moonep",)):
        fix = "use deepep_low_latency or allgather_reducescatter"
        return [Finding(f"{flag.found} {flag.words[0]}", fix)]
    return []


def _environment(environ: Mapping[str, str]) -> list[Finding]:
    found = [
        Finding(f"{name}: found {environ[name].strip()!r}", "unset it", NO_PIECES)
        for name in ENVIRONMENT
        if environ.get(name, "").strip().lower() not in ("", "0", "false")
    ]
    if override := environ.get(OVERRIDE, "").strip():
        found.append(Finding(f"{OVERRIDE}: found {override[:40]!r}", "unset it", NO_PIECES))
    return found


def notes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What costs something else than graphs, in lines."""
    if environ.get("VLLM_DISABLE_COMPILE_CACHE", "").strip() in ("", "0"):
        return ()
    return (
        "VLLM_DISABLE_COMPILE_CACHE: found set, so every start compiles anew (graphs stay);"
        " fix: unset it",
    )
