"""`python3 -m launcher.healthcheck`: exit 0 when the engine answers /health with 200 and serves.

An engine that is refused for want of CUDA graphs answers, too, until it has stopped.
"""

import json
import os
import sys
from collections.abc import Mapping

from launcher.options.settings import Settings, SettingsError, load
from launcher.status import metrics
from launcher.status.state import SERVES


def main(environ: Mapping[str, str]) -> int:
    """0: healthy; else 1 and the reason in one line."""
    try:
        settings = load(environ)
    except SettingsError as error:
        sys.stderr.write(error.lines[0] + "\n")
        return 1
    found = _health(settings) or _refused(settings)
    if found:
        sys.stderr.write(f"engine: {found}\n")
    return 1 if found else 0


def _health(settings: Settings) -> str | None:
    answer = metrics.get(metrics.reachable(settings.host), settings.port, "/health", timeout_s=5.0)
    if answer and answer[0] == 200:
        return None
    found = f"HTTP {answer[0]}" if answer else "no answer"
    return f"{found} from /health on port {settings.port}"


def _refused(settings: Settings) -> str | None:
    host, port = metrics.reachable(settings.host), settings.status_port
    answer = metrics.get(host, port, "/status", timeout_s=5.0)
    if not answer or answer[0] != 200:
        return f"no status from the launcher on port {port}"
    told = json.loads(answer[1])
    return None if told["phase"] in SERVES else f"{told['phase']}: {told['message']}"


if __name__ == "__main__":
    sys.exit(main(os.environ))
