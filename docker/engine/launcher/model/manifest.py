"""What the download leaves for the launcher: which folder serves which MODEL."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = "manifest.json"
KEPT = 8  # entries
FETCH = "run python3 -m launcher.model.fetch (the `model` service does) and start again"


@dataclass(frozen=True)
class Manifest:
    """A model on disk: the MODEL and MODEL_REVISION it was fetched for, its own name, its folder
    (absolute) and the commit it is at (None where there is no such thing)."""

    requested: str
    requested_revision: str
    model: str
    path: str
    revision: str | None


class ManifestError(Exception):
    """There is no usable manifest; the text has found, wanted and fix."""


def read(folder: Path) -> tuple[Manifest, ...]:
    """The manifests in `folder`, the newest first, at least one. Raises ManifestError."""
    path = folder / FILE_NAME
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["models"]
        return (Manifest(**entries[0]), *(Manifest(**fields) for fields in entries[1:]))
    except FileNotFoundError:
        raise ManifestError(f"found no {path}; wanted a fetched model; fix: {FETCH}") from None
    except (OSError, ValueError) as error:
        raise ManifestError(f"found {path} unreadable ({error}); fix: {FETCH}") from error
    except (TypeError, KeyError, IndexError) as error:
        raise ManifestError(f"found {path} without the right fields; fix: {FETCH}") from error


def read_for(folder: Path, model: str, revision: str | None) -> Manifest:
    """The manifest for this MODEL and MODEL_REVISION. Raises ManifestError."""
    known = read(folder)
    for found in known:
        if (found.requested, found.requested_revision) == (model, revision or ""):
            return found
    last = known[0]
    at = f" at {last.requested_revision}" if last.requested_revision else ""
    raise ManifestError(
        f"found {last.requested}{at} fetched; wanted {model}"
        f"{f' at {revision}' if revision else ''}; fix: {FETCH}"
    )


def write(folder: Path, manifest: Manifest) -> None:
    """Put the manifest into `folder`, before those of other models: while the next model is
    fetched, and when it turns out not to run, the one that serves must still find its own."""
    try:
        known = read(folder)
    except ManifestError:
        known = ()
    others = [each for each in known if _asked(each) != _asked(manifest)]
    kept = [manifest, *others][:KEPT]
    write_json(folder / FILE_NAME, {"models": [asdict(each) for each in kept]})


def _asked(manifest: Manifest) -> tuple[str, str]:
    return manifest.requested, manifest.requested_revision


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write `value` in one step, so that a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        partial.chmod(0o644)  # the engine may run as another user than the download
        partial.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
