"""One list of names: .env.example, stackctl, the launcher and the gateway agree."""

import re
from pathlib import Path

from launcher import settings as launcher_settings
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
            assert str(default) == value, name


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
    """`Range: A to B.` in the comment above an entry, against the gateway's own bounds."""
    for match in ENTRY.finditer(EXAMPLE):
        name = match[1]
        if name not in names.GATEWAY_TUNABLE:
            continue
        block = EXAMPLE[: match.start()].rpartition("\n\n")[2]
        said = re.search(r"Range: ([\d.]+) to ([\d.]+\d)", block)
        wanted = Settings.model_fields[name.removeprefix("GATEWAY_").lower()].description or ""
        bounds = re.search(r"([\d.]+) to ([\d.]+\d)", wanted)
        if bounds:
            assert said is not None, name
            assert said.groups() == bounds.groups(), name
