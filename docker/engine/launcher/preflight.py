"""Everything that must hold before vLLM is started: a fetched model, a fit machine, free ports."""

import importlib.metadata
import importlib.util
import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from launcher import prediction
from launcher.host import gather, machine
from launcher.model import manifest
from launcher.model.manifest import Manifest
from launcher.options.settings import Settings


class NotFitError(Exception):
    """The machine check failed; `lines` say what to do."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def fetched_model(settings: Settings) -> Manifest:
    """The model on disk for these settings. Raises NotFitError."""
    try:
        found = manifest.read_for(settings.models_dir, settings.model, settings.model_revision)
    except manifest.ManifestError as error:
        raise NotFitError((f"MODEL: {error}",)) from error
    if not Path(found.path).is_dir():
        raise NotFitError(
            (f"MODEL: found no folder {found.path}; wanted the model; fix: {manifest.FETCH}",)
        )
    return found


def check(settings: Settings, environ: Mapping[str, str], model: Path) -> tuple[str, ...]:
    """Notes about the machine. Raises NotFitError with everything that forbids a start."""
    facts = gather.gather(settings, environ, model)
    verdict = machine.judge(settings, facts)
    problems = (
        *verdict.problems,
        *_installation(settings),
        *_engine_port(settings),
        *heads(settings.tensor_parallel_size, read_config(model)),
        *prediction.cannot_fit(settings, model),
    )
    if problems:
        raise NotFitError(problems)
    return verdict.notes


def _installation(settings: Settings) -> tuple[str, ...]:
    if importlib.util.find_spec("vllm") is None:
        return (
            f"vLLM: found none for {sys.executable}; wanted the package vllm; fix: use the engine's"
            " image or environment",
        )
    if (settings.api_server_count or 1) > 1 and not has_vllm_command():
        return (
            f"API_SERVER_COUNT: found {settings.api_server_count}; wanted 1, since this build of"
            " vLLM comes without the command that runs several; fix: leave API_SERVER_COUNT empty",
        )
    return ()


def has_vllm_command() -> bool:
    """Whether `vllm serve` works here: it asks for its own distribution's version first."""
    try:
        importlib.metadata.distribution("vllm")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def read_config(model: Path) -> dict[str, object]:
    """The model's config.json; empty where there is none or it is not an object."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def heads(ranks: int, config: Mapping[str, object]) -> tuple[str, ...]:
    """Tensor parallelism gives each rank the same number of attention heads; vLLM says so only
    after it has started its processes."""
    text = config.get("text_config")
    count = (text if isinstance(text, dict) else config).get("num_attention_heads")
    if not isinstance(count, int) or count < 1 or count % ranks == 0:
        return ()
    fits = ", ".join(str(size) for size in range(1, count + 1) if count % size == 0)
    return (
        f"TENSOR_PARALLEL_SIZE: found {ranks}, and the model has {count} attention heads;"
        f" wanted a divisor ({fits}); fix: correct TENSOR_PARALLEL_SIZE, or take another MODEL",
    )


def _engine_port(settings: Settings) -> tuple[str, ...]:
    # An engine that still runs there would answer for ours.
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            return (port_line("ENGINE_PORT", settings.port, error),)
    return ()


def port_line(name: str, port: int, error: OSError) -> str:
    """The finding that `port` can't be listened on."""
    return (
        f"{name}: found port {port} unusable ({error.strerror}); wanted a free one;"
        " fix: end what uses it"
    )
