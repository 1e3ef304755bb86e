"""What a swap changes in .env, decided before anything is touched. Pure, but for the presets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stackctl import envfile, names
from stackctl.errors import USAGE, StackError, problem
from stackctl.layout import Layout

# What suits one model and may not suit the next. A preset names all of them or leaves them unset; a
# swap to a plain MODEL keeps them and says so.
OF_THE_MODEL = (
    "MODEL_REVISION",
    "MAX_MODEL_LEN",
    "KV_CACHE_DTYPE",
    "QUANTIZATION",
    "TOOL_CALL_PARSER",
    "REASONING_PARSER",
    "COMPILATION_CONFIG",
    "VLLM_EXTRA_ARGS",
)
UNSET = "(unset)"

Changes = Mapping[str, str]  # an empty value unsets


@dataclass(frozen=True)
class Wanted:
    """What was asked for: a model or a preset, and single settings (NAME=VALUE)."""

    model: str | None
    preset: str | None
    settings: Sequence[str] = ()


def changes(wanted: Wanted, preset: Mapping[str, str]) -> dict[str, str]:
    """New values by name. Raises StackError."""
    if (wanted.model is None) == (wanted.preset is None):
        raise problem("both or neither of MODEL and --preset", "one of them",
                      "scripts/stack swap MODEL, or swap --preset NAME", USAGE)  # fmt: skip
    found = dict.fromkeys(OF_THE_MODEL, "") | dict(preset) if wanted.preset else {}
    if wanted.model is not None:
        found = {"MODEL": wanted.model, "MODEL_REVISION": ""}
    return found | dict(_assignment(word) for word in wanted.settings)


def _assignment(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or name not in names.LAUNCHER:
        near = names.nearest(name)
        hint = f"{near}=VALUE" if near in names.LAUNCHER else "an engine setting of .env.example"
        raise problem(f"{word!r}", "NAME=VALUE of an engine setting", hint, USAGE)
    return name, value


def presets(layout: Layout) -> list[str]:
    return sorted(path.stem for path in layout.presets.glob("*.env"))


def preset(layout: Layout, name: str | None) -> dict[str, str]:
    """Its settings; none for no name. Raises StackError."""
    if name is None:
        return {}
    known = presets(layout)
    if name not in known:
        raise problem(f"preset {name!r}", f"one of {', '.join(known) or 'none'}",
                      "see compose/models", USAGE)  # fmt: skip
    path = layout.presets / f"{name}.env"
    try:
        found = dict(envfile.parse_bytes(path.read_bytes(), lambda _: None).values)
    except envfile.EnvFileError as error:
        raise StackError(f"{path.name}: found {error}; wanted NAME=value lines", USAGE) from error
    for setting in found:
        if setting not in names.LAUNCHER:
            raise problem(f"{setting} in {path.name}", "engine settings alone", "take it out")
    return found


def edited(text: str, new: Changes) -> str:
    """.env with the new values, every other line as it is. Raises StackError where that cannot be
    done safely (a value that spans lines, for one)."""
    before = _parsed(text)
    written = {name: value for name, value in new.items() if value or before.get(name)}
    for name, value in written.items():
        if not value.isprintable():
            raise problem(f"{name}={value!r}", "a value on one line", "correct it", USAGE)
        text = envfile.with_value(text, name, envfile.quoted(value))
    try:
        good = _parsed(text) == before | written
    except envfile.EnvFileError:
        good = False
    if not good:
        raise problem(
            f"{', '.join(written)} in an .env that cannot be edited safely",
            "each setting on a line of its own",
            "edit it by hand, then make up",
        )
    return text


def _parsed(text: str) -> dict[str, str]:
    return envfile.parse(text.removeprefix(envfile.BOM), lambda _: None)


def shown(before: Mapping[str, str], new: Changes) -> list[str]:
    """What changes, a line each."""
    return [
        f"{name}: {before.get(name) or UNSET} -> {value or UNSET}"
        for name, value in new.items()
        if value != before.get(name, "")
    ]


def kept(before: Mapping[str, str], new: Changes) -> list[str]:
    """Settings that were made for the model before, and stay."""
    return [
        f"{name}={before[name]}" for name in OF_THE_MODEL if before.get(name) and name not in new
    ]
