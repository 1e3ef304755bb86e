"""What vLLM's environment needs for the plugin graphproof to load and to report. Pure but for
`names`."""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path


def names() -> tuple[str, ...]:
    """The plugin's names as vLLM knows them; none where its distribution isn't on the path."""
    try:
        points = importlib.metadata.distribution("graphproof").entry_points
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(dict.fromkeys(point.name for point in points))


def environment(
    folder: Path, given: Mapping[str, str], own: tuple[str, ...], *, required: bool
) -> dict[str, str]:
    """Variables to add. given: vLLM's environment so far; a list of plugins there leaves out all
    others, so ours are added to it."""
    listed = [name.strip() for name in given.get("VLLM_PLUGINS", "").split(",") if name.strip()]
    plugins = {"VLLM_PLUGINS": ",".join(dict.fromkeys((*listed, *own)))} if listed else {}
    return {
        "ENGINE_PROOF_DIR": str(folder),
        "ENGINE_REQUIRE_GRAPHS": "1" if required else "0",
        **plugins,
    }
