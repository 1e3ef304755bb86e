"""Programs of a GPU host (nvidia-smi, docker, nvidia-ctk, journalctl, timedatectl) that answer from
a capture in tests/data/captures/hosts, put in front of PATH."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HOSTS = Path(__file__).parents[1] / "data" / "captures" / "hosts"

# The real nvidia-smi answers any choice of the fields that its driver knows, and fails on others.
NVIDIA_SMI = """#!{python}
import json, sys
host = json.load(open({file!r}))
if host.get("smi_error"):
    print(host["smi_error"])
    sys.exit(host.get("smi_rc", 9))
option = sys.argv[1] if sys.argv[1:] else ""
if option == "--help-query-gpu":
    for field in host["gpus"][0]:
        print(f'"{{field}}"\\nWhat it is.\\n')
elif option.startswith("--query-gpu="):
    fields = option.partition("=")[2].split(",")
    unknown = [field for field in fields if field not in host["gpus"][0]]
    if unknown:
        print(f'Field "{{unknown[0]}}" is not a valid field to query.')
        sys.exit(2)
    for card in host["gpus"]:
        print(", ".join(card[field] for field in fields))
elif option.startswith("--query-compute-apps="):
    for pid, uuid, used, name in host.get("processes", []):
        print(f"{{pid}}, {{uuid}}, {{used}}, {{name}}")
elif option == "-L":
    for card in host["gpus"]:
        print(f"GPU {{card['index']}}: {{card['name']}} (UUID: GPU-0)")
        on = card["mig.mode.current"] == "Enabled"
        for at in range(host.get("mig_instances", 0) if on else 0):
            print(f"  MIG 3g.71gb     Device  {{at}}: (UUID: MIG-{{at}})")
else:
    sys.exit("unexpected: " + " ".join(sys.argv))
"""
DOCKER = """#!{python}
import json, sys
host = json.load(open({file!r}))
words = sys.argv[1:]
if words[:1] == ["version"]:
    print(host["docker"]["ServerVersion"])
elif words[:1] == ["info"] and words[-1] == "{{{{json .}}}}":
    print(json.dumps(host["docker"]))
elif words[:1] == ["info"]:
    print("/nonexistent")
elif words[:3] == ["compose", "version", "--short"]:
    print("2.40.3")
else:
    sys.exit("unexpected: " + " ".join(words))
"""


def names() -> list[str]:
    """Every captured host."""
    return sorted(path.stem for path in HOSTS.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    """One host's capture."""
    found: dict[str, Any] = json.loads((HOSTS / f"{name}.json").read_text())
    return found


def install(name: str, into: Path) -> None:
    """Make the host's programs in the folder `into`; what the host lacks is left out."""
    host, file = load(name), str(HOSTS / f"{name}.json")
    if "gpus" in host or "smi_error" in host:
        _program(into / "nvidia-smi", NVIDIA_SMI.format(python=sys.executable, file=file))
    if "docker" in host:
        _program(into / "docker", DOCKER.format(python=sys.executable, file=file))
    if "nvidia_ctk" in host:
        said = f"NVIDIA Container Toolkit CLI version {host['nvidia_ctk']}"
        _program(into / "nvidia-ctk", f"#!/bin/sh\necho '{said}'\n")
    if host.get("hook"):
        _program(into / "nvidia-container-runtime-hook", "#!/bin/sh\n")
    _program(
        into / "journalctl", f"#!/bin/sh\n/bin/cat <<'END'\n{host.get('kernel_log', '')}\nEND\n"
    )
    _program(into / "timedatectl", f"#!/bin/sh\necho {host.get('synchronised', 'yes')}\n")


def _program(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)
