"""One list of names: .env.example, stackctl, the launcher and the gateway agree."""

import re
from pathlib import Path

from launcher.options import settings as launcher_settings
from stackctl import envfile, names

from gateway.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
ENTRY = re.compile(r"^(?:# )?([A-Z_]+)=(.*)$", re.MULTILINE)


def test_every_known_name_is_documented_and_no_other() -> None:
    assert sorted(name for name, _ in ENTRY.findall(EXAMPLE)) == sorted(names.DOCUMENTED)


def test_gateway_names_are_the_gateways() -> None:
    assert {f"GATEWAY_{name.upper()}" for name in Settings.model_fields} == set(names.GATEWAY)


def test_launcher_names_are_the_launchers() -> None:
    source = Path(launcher_settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'(?:Variable|optional)\(\s*"([A-Z_]+)"', source))
    assert {name for name in read if not name.startswith("ENGINE_")} == set(names.LAUNCHER)


def test_gateway_defaults_are_the_documented_ones() -> None:
    for name, value in ENTRY.findall(EXAMPLE):
        if name in names.GATEWAY_TUNABLE:
            default = Settings.model_fields[name.removeprefix("GATEWAY_").lower()].default
            assert ("" if default in {None, ()} else str(default)) == value, name


def test_every_entry_has_meaning_and_default_above_it() -> None:
    lines = EXAMPLE.splitlines()
    for number, line in enumerate(lines):
        if ENTRY.match(line):
            above = lines[number - 1]
            block = "\n".join(lines[max(0, number - 6) : number])
            assert above.startswith("# "), line
            assert "# Default: " in block, line


def test_the_example_parses_to_the_defaults() -> None:
    values = envfile.parse(EXAMPLE, {}.get)
    assert values == {
        "STACK_MODE": "auto",
        "NGINX_BIND": "127.0.0.1",
        "NGINX_PORT": "8080",
        "COMPOSE_FILE": "docker-compose.yml",
        "MODEL": "auto",
        "TENSOR_PARALLEL_SIZE": "1",
        "GPU_MEMORY_UTILIZATION": "0.90",
    }


def test_gateway_ranges_are_the_documented_ones() -> None:
    """`Range: A to B` above an entry, the words of a refusal, and the bounds that are held."""
    entries = ENTRY.finditer(EXAMPLE)
    said = {m[1]: _range(EXAMPLE[: m.start()].rpartition("\n\n")[2], "Range: ") for m in entries}
    for name, field in Settings.model_fields.items():
        ends = [getattr(rule, end, None) for end in ("ge", "le") for rule in field.metadata]
        bounds = [float(end) for end in ends if end is not None]
        assert said[f"GATEWAY_{name.upper()}"] == bounds, name
        if bounds and bounds[0] != bounds[1]:
            assert _range(field.description or "", "") == bounds, name


def _range(text: str, before: str) -> list[float]:
    """[lowest, highest]; one number alone is both; with `, or 0` behind them the lowest is 0; empty
    when there is no range.
    """
    found = re.search(before + r"(\d[\d.]*)(?: to ([\d.]*\d))" + ("?" if before else ""), text)
    if not found:
        return []
    off = text[found.end() :].startswith(", or 0")
    return [0.0 if off else float(found[1]), float(found[2] or found[1])]
