"""What must hold for CUDA graphs before vLLM is started: no setting that rules them out."""

from collections.abc import Mapping

from launcher.cudagraphs import graphs
from launcher.cudagraphs.graphs import Finding
from launcher.options import configfile
from launcher.options.given import ConfigFile
from launcher.options.settings import Settings
from launcher.preflight import NotFitError


def config_file(settings: Settings) -> ConfigFile | None:
    """The file of --config. Raises NotFitError where it can't be read."""
    try:
        return configfile.read(settings.extra_args)
    except configfile.ConfigFileError as error:
        raise NotFitError((str(error),)) from error


def ruled_out(
    settings: Settings, environ: Mapping[str, str], file: ConfigFile | None
) -> tuple[Finding, ...]:
    """Settings that leave no CUDA graph, those in `file` among them. Raises NotFitError where
    graphs are required."""
    found = graphs.ruled_out(settings.compilation_config, settings.extra_args, environ, file)
    if found and settings.require_cuda_graphs and settings.device == "cuda":
        raise NotFitError(tuple(graphs.refusal(finding) for finding in found))
    return found
