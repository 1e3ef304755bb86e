"""Which downloads are finished, so that a complete model needs no network to be found again."""

import json
from dataclasses import dataclass
from pathlib import Path

from launcher.model import manifest

FILE_NAME = "complete.json"


@dataclass(frozen=True)
class Finished:
    """A finished download: its folder, commit and files (name → bytes)."""

    path: Path
    commit: str
    files: dict[str, int]


def recall(models_dir: Path, model: str, revision: str | None) -> Finished | None:
    """The finished download of that model and revision, if all of its files are still there."""
    entry = _notes(models_dir).get(_key(model, revision))
    if not isinstance(entry, dict):
        return None
    try:
        found = Finished(Path(entry["path"]), entry["commit"], entry["files"])
        whole = all(
            (found.path / name).stat().st_size == size for name, size in found.files.items()
        )
    except (KeyError, TypeError, AttributeError, OSError):
        return None
    return found if whole else None


def remember(models_dir: Path, model: str, revision: str | None, done: Finished) -> None:
    """Note a finished download."""
    entry = {"path": str(done.path), "commit": done.commit, "files": done.files}
    notes = {**_notes(models_dir), _key(model, revision): entry}
    manifest.write_json(models_dir / FILE_NAME, notes)


def _key(model: str, revision: str | None) -> str:
    return f"{model}@{revision or ''}"


def _notes(models_dir: Path) -> dict[str, object]:
    try:
        notes = json.loads((models_dir / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}
