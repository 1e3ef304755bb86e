"""compose/pinned.yml: the images the stack is built from, by digest.

The overlay is JSON, which YAML contains: `x-pins` holds what was resolved and when, `services` the
part of it that fits the other files in COMPOSE_FILE. `init` and `up` write `services` anew from
`x-pins`, so that a change of mode needs no network.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackctl import envfile
from stackctl.config import Config
from stackctl.errors import problem
from stackctl.layout import Layout

OVERLAY = "compose/pinned.yml"
CPU_OVERLAY = "compose/cpu.yml"
WORKERS_OVERLAY = "compose/workers.yml"
HEADER = "# Written by scripts/stack pin: do not edit; scripts/stack pin --unpin removes it.\n"


@dataclass(frozen=True)
class Source:
    """Where a base image's tag stands: the first group of `pattern` in `file`."""

    file: str
    pattern: str

    def read(self, root: Path) -> str:
        """Raises StackError when the checkout's own file does not have it."""
        found = re.search(self.pattern, (root / self.file).read_text(encoding="utf-8"))
        if found is None:
            raise problem(f"no image in {self.file}", "one", f"git checkout {self.file}")
        return found[1]


_ENGINE = r"VLLM_IMAGE: \$\{VLLM_IMAGE:-([^}\s]+)\}"
GPU_ENGINE = Source("docker-compose.yml", _ENGINE)
CPU_ENGINE = Source(CPU_OVERLAY, _ENGINE)
# Service and build argument of the images that are the same in each mode.
BASES = {
    ("gateway", "PYTHON_IMAGE"): Source(
        "docker/gateway/Dockerfile", r"(?m)^ARG PYTHON_IMAGE=(\S+)"
    ),
    ("nginx", "NGINX_IMAGE"): Source("docker/nginx/Dockerfile", r"(?m)^ARG NGINX_IMAGE=(\S+)"),
}
VALKEY = Source(WORKERS_OVERLAY, r"(?m)^    image: (\S*valkey:\S+)")


@dataclass(frozen=True)
class Pins:
    """`images`: reference with a tag → its digest. `made`: when they were asked for, UTC."""

    images: Mapping[str, str]
    made: str

    def of(self, reference: str) -> str | None:
        """NAME:TAG@sha256:…, None when unknown. What bears a digest already is its own."""
        if "@" in reference:
            return reference
        digest = self.images.get(reference)
        return f"{reference}@{digest}" if digest else None


def files_of(config: Config) -> list[str]:
    """COMPOSE_FILE as a list."""
    separator = config.get("COMPOSE_PATH_SEPARATOR", ":")
    return [name for name in config.get("COMPOSE_FILE").split(separator) if name]


def engine(layout: Layout, config: Config, *, cpu: bool) -> str:
    return config.get("VLLM_IMAGE") or (CPU_ENGINE if cpu else GPU_ENGINE).read(layout.root)


def needed(layout: Layout, config: Config, files: Iterable[str]) -> list[str]:
    """References that the stack of these compose files is built from."""
    root = layout.root
    valkey = [VALKEY.read(root)] if WORKERS_OVERLAY in files else []
    bases = [source.read(root) for source in BASES.values()]
    return [engine(layout, config, cpu=CPU_OVERLAY in files), *bases, *valkey]


def missing(layout: Layout, config: Config, pins: Pins, files: Iterable[str]) -> list[str]:
    """Those that were not resolved: VLLM_IMAGE was edited since, or the checkout updated."""
    return [image for image in needed(layout, config, files) if pins.of(image) is None]


def services(layout: Layout, config: Config, pins: Pins, files: Iterable[str]) -> dict[str, Any]:
    """The overlay's services. Valkey's only beside the overlay that brings it: alone, it would be
    a service of its own."""
    root = layout.root
    wanted = {("model", "VLLM_IMAGE"): engine(layout, config, cpu=CPU_OVERLAY in files)}
    wanted |= {place: source.read(root) for place, source in BASES.items()}
    found = {place: pins.of(image) for place, image in wanted.items()}
    made = {name: {"build": {"args": {arg: ref}}} for (name, arg), ref in found.items() if ref}
    valkey = pins.of(VALKEY.read(root)) if WORKERS_OVERLAY in files else None
    return {**made, "valkey": {"image": valkey}} if valkey else made


def text(pins: Pins, rendered: Mapping[str, Any]) -> str:
    body = {"x-pins": {"made": pins.made, "images": dict(pins.images)}, "services": rendered}
    return HEADER + json.dumps(body, indent=2) + "\n"


def read(layout: Layout) -> Pins | None:
    """None without the file. Raises StackError when it is not what `pin` writes."""
    try:
        whole = (layout.root / OVERLAY).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    lines = [line for line in whole.splitlines() if not line.startswith("#")]
    try:
        held = json.loads("\n".join(lines))["x-pins"]
        return Pins({str(k): str(v) for k, v in held["images"].items()}, str(held["made"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise problem(
            f"{OVERLAY} that was edited", "the file that pin wrote", "make pin"
        ) from error


def write(layout: Layout, config: Config, pins: Pins, files: Iterable[str]) -> None:
    rendered = services(layout, config, pins, files)
    envfile.write_atomically(layout.root / OVERLAY, text(pins, rendered), 0o644)


def keep(layout: Layout, config: Config, files: Iterable[str]) -> None:
    """Have the overlay say what fits `files`; nothing without one."""
    pins = read(layout)
    if pins:
        write(layout, config, pins, files)
