"""Become the program that a JSON file describes. Run by supervisord, one file a program.

Supervisor's own `environment=` cannot carry every value (quotes, JSON, %), so the file does:
{"argv": [...], "env": {...}, "cwd": "..."}. Imports nothing of the package.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.chdir(spec["cwd"])
    os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 (no shell is the point)


if __name__ == "__main__":
    main()
