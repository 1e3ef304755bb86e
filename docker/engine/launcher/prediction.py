"""How large vLLM's KV cache will be, said before it starts; afterwards its own line tells."""

from dataclasses import replace
from pathlib import Path

from fit import cpu, gpus, source
from fit.asked import context, question
from fit.judge import Model, measure
from fit.remedy import judge
from fit.shape import ShapeError, read
from fit.source import SourceError

from launcher.cudagraphs import graphs
from launcher.host import versions
from launcher.options import flags, uncounted
from launcher.options.argv import CPU_KV_CACHE_BYTES
from launcher.options.settings import Settings

# A forecast ends no start: what it stumbles over, vLLM will judge.
UNTOLD = (SourceError, ShapeError, OSError)
CERTAIN = 0.95  # of the files' bytes are in memory in any case


def kv_tokens(settings: Settings, folder: Path) -> int | None:
    """Tokens, as vLLM will report them; None where these settings or this model can't be told."""
    if uncounted.any_of(settings.extra_args):
        return None
    try:
        found = source.folder(folder)
        model = _model(found, settings)
    except UNTOLD:
        return None
    return _on_cpu(settings, model) if settings.device == "cpu" else _on_gpu(settings, model)


def cannot_fit(settings: Settings, folder: Path) -> tuple[str, ...]:
    """The line that says so where the weights alone are more than any GPU here may hold; empty
    where that is not certain."""
    if settings.device == "cpu" or uncounted.of_weights(settings.extra_args):
        return ()
    largest = max(gpus.seen(), key=lambda card: card.total, default=None)
    if largest is None:
        return ()
    try:
        found = source.folder(folder)
        model = _model(found, settings)
    except UNTOLD:
        return ()
    asked = question(settings, largest)
    own = model.size(asked.quantization).per_rank(asked.ranks)
    if model.shape.rough or own * CERTAIN <= largest.total * asked.share:
        return ()
    return (f"MODEL: {judge(model, asked).reason}",)


def _model(found: source.Source, settings: Settings) -> Model:
    """Dummy weights have the config's size, whatever files lie there."""
    loads = [f for f in flags.read(settings.extra_args) if flags.is_given([f], "load-format")]
    dummy = bool(loads) and loads[-1].value == "dummy"
    is_id = not settings.model.startswith((".", "/", "~")) and settings.model != "auto"
    return Model(
        name=settings.model if is_id else found.name, shape=read(found.config),
        file_bytes=None if dummy else found.file_bytes, wide_bytes=found.wide_bytes,
    )  # fmt: skip


def _on_cpu(settings: Settings, model: Model) -> int | None:
    told = cpu.judge(model, cpu.Room(0, CPU_KV_CACHE_BYTES), context(settings))
    tokens = told["kv_cache_tokens"]
    return tokens if isinstance(tokens, int) and tokens else None


def _on_gpu(settings: Settings, model: Model) -> int | None:
    card = next(iter(gpus.here()), None)
    if card is None:
        return None
    asked = question(settings, card, vllm=versions.vllm() or None)
    found = graphs.ruled_out(settings.compilation_config, settings.extra_args, {})
    asked = replace(asked, eager=settings.debug or bool(found))
    if settings.model == "auto" and asked.context is None:
        asked = replace(asked, context=0)  # vLLM is told to find the longest (launcher.argv)
    return measure(model, asked).kv_cache_tokens or None
