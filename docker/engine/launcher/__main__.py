"""`python3 -m launcher [--print-argv]`: PID 1 of the engine container, a process in local mode."""

import json
import os
import sys
from collections.abc import Mapping

from launcher import run
from launcher.model import manifest
from launcher.options import argv
from launcher.options.settings import Settings, SettingsError, load

BAD_SETTINGS = 2
USAGE = "usage: python3 -m launcher [--print-argv]; everything else comes from the environment\n"


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Exit code: 2 bad settings, 3 unfit machine, else the engine's."""
    if arguments not in ([], ["--print-argv"]):
        sys.stderr.write(USAGE)
        return BAD_SETTINGS
    try:
        settings = load(environ)
    except SettingsError as error:
        sys.stderr.write("\n".join(error.lines) + "\n")
        return BAD_SETTINGS
    if arguments:
        sys.stdout.write(json.dumps(printed(settings)) + "\n")
        return 0
    return run.run(settings, environ)


def printed(settings: Settings) -> list[str]:
    """vLLM's arguments, with the fetched model's folder where there is one and MODEL elsewhere."""
    try:
        found = manifest.read_for(settings.models_dir, settings.model, settings.model_revision)
    except manifest.ManifestError:
        return argv.arguments(settings, settings.model, argv.model_name(settings.model, None))
    return argv.arguments(settings, found.path, found.model)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
