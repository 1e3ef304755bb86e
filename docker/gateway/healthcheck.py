"""Container health check: exit 0 when the gateway's /livez answers 200, else 1 and one line."""

import os
import sys
import urllib.error
import urllib.request


def main() -> int:
    port = os.environ.get("GATEWAY_PORT") or "8081"
    url = f"http://127.0.0.1:{port}/livez"
    try:
        with urllib.request.urlopen(url, timeout=2):
            return 0
    except (urllib.error.URLError, OSError) as error:
        sys.stderr.write(f"{url}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
