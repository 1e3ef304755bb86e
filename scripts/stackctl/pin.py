"""The verb `pin`: the tags of all base images → digests, as an overlay that COMPOSE_FILE names."""

import time

from stackctl import init, pins, registry
from stackctl.config import Config
from stackctl.console import Console
from stackctl.errors import StackError
from stackctl.layout import Layout
from stackctl.pins import Pins


def pin(layout: Layout, config: Config, console: Console) -> int:
    """Resolve, write, name it in .env. Raises StackError; then nothing was changed."""
    files = pins.files_of(config)
    wanted = pins.needed(layout, config, [*files, pins.WORKERS_OVERLAY])
    images = {image: _resolve(image, config, console) for image in wanted if "@" not in image}
    images |= _other_engine(layout, config, console, known=images)
    found = Pins(images, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    pins.write(layout, config, found, files)
    named = init.name_pins(layout, config)
    console.line(f"wrote {pins.OVERLAY}{_because(config, named)}")
    console.line("Next: make up builds from these")
    return 0


def unpin(layout: Layout, config: Config, console: Console) -> int:
    path = layout.root / pins.OVERLAY
    there = path.exists()
    path.unlink(missing_ok=True)
    init.name_pins(layout, config)
    console.line(f"removed {pins.OVERLAY}; tags count again" if there else "nothing was pinned")
    return 0


def _resolve(text: str, config: Config, console: Console) -> str:
    image = registry.parse(text)
    console.progress(f"asking {image.host}", text)
    digest = registry.digest(image, config.values)
    console.line(f"  {text}  {digest}")
    return digest


def _other_engine(
    layout: Layout, config: Config, console: Console, known: dict[str, str]
) -> dict[str, str]:
    """The engine of the mode that COMPOSE_FILE does not name, so that a change of STACK_MODE
    needs no network. It may be missing where a registry has only what is used."""
    both = [pins.engine(layout, config, cpu=cpu) for cpu in (False, True)]
    other = next((image for image in both if image not in known and "@" not in image), None)
    if other is None:
        return {}
    try:
        return {other: _resolve(other, config, console)}
    except StackError as error:
        console.note(f"  not pinned, for another mode: {error}")
        return {}


def _because(config: Config, named: bool) -> str:
    if named:
        return "; COMPOSE_FILE in .env names it"
    if "COMPOSE_FILE" in config.environment:
        return f"; COMPOSE_FILE in your environment has to name it: …:{pins.OVERLAY}"
    return "; make init names it in .env"
