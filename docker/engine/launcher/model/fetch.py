"""`python3 -m launcher.model.fetch`: makes MODEL be on disk and writes down where.

Run by the one-shot `model` service, the only one with a network and the token, and by local mode.
Exit codes: launcher.model.fetcherror.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.model import auto, embedded, finished, folder, hub, manifest, tokenfile
from launcher.model.fetcherror import Code, FetchError
from launcher.model.finished import Finished
from launcher.model.huberrors import Wanted
from launcher.model.manifest import Manifest
from launcher.options import settings

BAD_SETTINGS = 2
IMAGE_MODELS = Path("/opt/models")  # where the CPU image has the embedded model


@dataclass(frozen=True)
class Request:
    """What is asked for, and where things lie."""

    device: settings.Device
    model: str
    revision: str | None
    models_dir: Path
    cache: Path
    token_path: Path
    endpoint: str | None


def request(environ: Mapping[str, str]) -> Request:
    """The request in the environment. Raises SettingsError."""
    # Only what concerns the model: another variable's fault is the launcher's to report.
    names = ("ENGINE_DEVICE", "MODEL", "MODEL_REVISION", "ENGINE_MODELS_DIR")
    chosen = settings.load({name: environ.get(name, "") for name in names})
    home = Path(environ.get("HF_HOME", "").strip() or Path.home() / ".cache" / "huggingface")
    return Request(
        device=chosen.device,
        model=chosen.model,
        revision=chosen.model_revision,
        models_dir=chosen.models_dir,
        cache=home / "hub",
        token_path=Path(environ.get("HF_TOKEN_PATH", "").strip() or home / "token"),
        endpoint=environ.get("HF_ENDPOINT", "").strip() or None,
    )


def fetch(asked: Request) -> Manifest:
    """Make the model be there; the manifest that says where. Raises FetchError."""
    if asked.model.startswith(("/", "./", "../", "~/")):
        return _local(asked)
    if asked.model != "auto":
        return _from_hub(asked, asked.model)
    return _embedded(asked) if asked.device == "cpu" else _from_hub(asked, _auto(asked))


def _local(asked: Request) -> Manifest:
    path = Path(asked.model).expanduser().absolute()
    if not path.exists():
        raise FetchError(
            Code.NO_SUCH_MODEL,
            f"MODEL: found no folder {path}; wanted a model's folder; fix: correct the path (a"
            " container sees .run/models of the host as /models, and nothing else)",
        )
    lacking = folder.missing(path)
    if lacking:
        raise FetchError(
            Code.UNUSABLE,
            f"MODEL: found {path}, but {lacking}; wanted a complete model in Hugging Face form;"
            " fix: copy the missing files there",
        )
    return Manifest(asked.model, asked.revision or "", path.resolve().name, str(path), None)


def _embedded(asked: Request) -> Manifest:
    places = [root / embedded.FOLDER_NAME for root in (asked.models_dir, IMAGE_MODELS)]
    there = next((place for place in places if embedded.is_complete(place)), None)
    if there is None:
        there = places[0]
        _materialise(there)
    return Manifest("auto", asked.revision or "", embedded.MODEL_NAME, str(there), None)


def _materialise(dest: Path) -> None:
    try:
        embedded.materialise(dest)
    except embedded.EmbeddedError as error:
        raise FetchError(Code.UNUSABLE, f"MODEL: {error}") from error
    except OSError as error:
        raise FetchError(
            Code.DISK,
            f"disk: found {dest.parent} unusable ({error.strerror}); wanted 0.4 GB there;"
            " fix: free some disk space or correct its owner",
        ) from error


def _auto(asked: Request) -> str:
    """The earlier choice is kept, so that a change of the table changes no running stack."""
    try:
        earlier = manifest.read_for(asked.models_dir, "auto", asked.revision)
    except manifest.ManifestError:
        earlier = None
    if earlier and "/" in earlier.model:
        return earlier.model
    memory = auto.smallest_gpu_mib()
    chosen = auto.choose(memory)
    say(f"auto: {chosen} for {memory / 1024:.0f} GiB of GPU memory")
    return chosen


def _from_hub(asked: Request, model: str) -> Manifest:
    kept = finished.recall(asked.models_dir, model, asked.revision)
    if kept:
        say(f"{model} is complete in the cache")
        return Manifest(asked.model, asked.revision or "", model, str(kept.path), kept.commit)
    wanted = Wanted(
        model, asked.revision, tokenfile.read(asked.token_path), asked.endpoint, asked.cache
    )
    try:
        say(f"looking {model} up")
        path, remote = hub.download(wanted, say)
    except FetchError as error:
        usable = hub.cached(wanted) if error.code == Code.NETWORK else None
        if usable is None or folder.missing(usable):
            raise
        say(f"{model} is usable in the cache, and the hub can't be reached")
        return Manifest(asked.model, asked.revision or "", model, str(usable), usable.name)
    _check(model, path)
    say(f"100 % ({sum(remote.files.values()) / 1e9:.1f} GB), {model} is complete")
    done = Manifest(asked.model, asked.revision or "", model, str(path), remote.commit)
    finished.remember(
        asked.models_dir, model, asked.revision, Finished(path, remote.commit, remote.files)
    )
    return done


def _check(model: str, path: Path) -> None:
    lacking = folder.missing(path)
    if lacking:
        raise FetchError(
            Code.UNUSABLE,
            f"MODEL: found {model} on the hub, but {lacking}; wanted a complete model;"
            " fix: choose another MODEL",
        )


@contextlib.contextmanager
def _alone(models_dir: Path) -> Iterator[None]:
    """One download at a time: two would write the same files. The kernel frees the lock of a
    process that was killed."""
    models_dir.mkdir(parents=True, exist_ok=True)
    with (models_dir / ".fetch.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another download to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """One line of progress."""
    sys.stdout.write(f"model: {text}\n")
    sys.stdout.flush()


def main(environ: Mapping[str, str]) -> int:
    """Fetch and write the manifest; the exit code."""
    try:
        asked = request(environ)
        with _alone(asked.models_dir):
            done = fetch(asked)
            manifest.write(asked.models_dir, done)
    except settings.SettingsError as error:
        sys.stderr.write("\n".join(error.lines) + "\n")
        return BAD_SETTINGS
    except FetchError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    except OSError as error:
        sys.stderr.write(
            f"disk: found {error.filename} unusable ({error.strerror}); wanted to write there;"
            " fix: free some disk space or correct its owner\n"
        )
        return Code.DISK
    say(f"ready: {done.model} in {done.path}")
    return 0


def prepare(environ: dict[str, str]) -> None:
    """Settings of huggingface_hub, which it reads when it is imported: no bars (we say how far it
    is), no token but the one we pass, no offline mode, one try less patient than its default."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        environ.pop(name, None)
    environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    environ["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"  # noqa: S105 - a switch, no secret
    environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    environ.setdefault("HF_HUB_VERBOSITY", "error")
    environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "30")


if __name__ == "__main__":
    prepare(os.environ)  # type: ignore[arg-type]
    sys.exit(main(os.environ))
