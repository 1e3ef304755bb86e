"""`python3 -m launcher.healthcheck`: exit 0 when the engine answers /health with 200."""

import os
import sys
from collections.abc import Mapping

from launcher import metrics
from launcher.settings import SettingsError, load


def main(environ: Mapping[str, str]) -> int:
    """0: healthy; else 1 and the reason in one line."""
    try:
        settings = load(environ)
    except SettingsError as error:
        sys.stderr.write(error.lines[0] + "\n")
        return 1
    answer = metrics.get(metrics.reachable(settings.host), settings.port, "/health", timeout_s=5.0)
    if answer and answer[0] == 200:
        return 0
    found = f"HTTP {answer[0]}" if answer else "no answer"
    sys.stderr.write(f"engine: {found} from /health on port {settings.port}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(os.environ))
