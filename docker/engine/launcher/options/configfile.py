"""The YAML file that VLLM_EXTRA_ARGS may name with --config, as the words vLLM makes of it."""

import importlib
import json
from pathlib import Path

from launcher.options.given import ConfigFile


class ConfigFileError(Exception):
    """The file can't be read; one line that says what to do."""


def read(arguments: tuple[str, ...]) -> ConfigFile | None:
    """The file named in `arguments`, or None. Raises ConfigFileError.

    vLLM looks for the word --config itself: with an equals sign or shortened it reads no file.
    """
    if "--config" not in arguments[:-1]:
        return None
    path = arguments[arguments.index("--config") + 1]
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise _unreadable(path, f"not readable ({reason})") from error
    return ConfigFile(path, words(_parsed(path, text)))


def _parsed(path: str, text: str) -> object:
    try:
        # vLLM's own environment always has it: it reads this very file with it.
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        raise _unreadable(path, "and no PyYAML here to read it with") from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise _unreadable(path, f"which is no YAML ({reason})") from error


def _unreadable(path: str, what: str) -> ConfigFileError:
    return ConfigFileError(
        f"VLLM_EXTRA_ARGS: found --config {path}, {what}; wanted a YAML file of vLLM's flags;"
        " fix: correct the file or its name, or take the flag out"
    )


def words(config: object) -> tuple[str, ...]:
    """vLLM's own way from a file's content to arguments (utils/argparse_utils.py)."""
    if not isinstance(config, dict):
        return ()
    return tuple(word for key, value in config.items() for word in _flag(str(key), value))


def _flag(key: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    if isinstance(value, list):
        return [f"--{key}", *map(str, value)] if value else []
    if isinstance(value, dict):
        return [f"--{key}", json.dumps(value, default=str)]
    return [f"--{key}", str(value)]
