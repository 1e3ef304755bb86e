"""Flags with the words after them, from VLLM_EXTRA_ARGS and from the file that --config names.
Pure."""

from dataclasses import dataclass

from launcher.options import flags
from launcher.options.flags import Flag


@dataclass(frozen=True)
class ConfigFile:
    """A file that VLLM_EXTRA_ARGS names with --config: the words vLLM makes of it."""

    path: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """One flag, the words after it and the file it stands in, where it stands in one."""

    flag: Flag
    words: tuple[str, ...]
    file: str | None

    @property
    def found(self) -> str:
        if self.file:
            return f"VLLM_EXTRA_ARGS: found --config {self.file} with {self.flag.written[2:]}"
        return f"VLLM_EXTRA_ARGS: found {self.flag.written}"


def read(arguments: tuple[str, ...], file: ConfigFile | None) -> list[Given]:
    """All flags in the order in which vLLM takes them: the file's first, so that the last of two
    is the command line's."""
    return [*(_read(file.arguments, file.path) if file else []), *_read(arguments, None)]


def _read(arguments: tuple[str, ...], file: str | None) -> list[Given]:
    groups: list[list[str]] = []
    for word in arguments:
        if any(flag.name for flag in flags.read((word,))):
            groups.append([word])
        elif groups:
            groups[-1].append(word)
    return [_one(tuple(group), file) for group in groups]


def _one(group: tuple[str, ...], file: str | None) -> Given:
    flag = flags.read(group)[0]
    if len(group) > 1 and flag.value == group[1]:
        return Given(flag, group[1:], file)
    return Given(flag, () if flag.value is None else (flag.value,), file)


def last(given: list[Given], name: str) -> Given | None:
    """The flag that counts for `name` (without dashes), by any spelling vLLM takes."""
    found = [each for each in given if flags.is_given([each.flag], name)]
    return found[-1] if found else None
