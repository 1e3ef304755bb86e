"""init makes what is missing, overwrites nothing, and keeps COMPOSE_FILE in step."""

import stat
from pathlib import Path

import pytest
from stackctl import config, init
from stackctl.layout import Layout
from stackctl.mode import Mode


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / ".env.example").write_text("MODEL=auto\nCOMPOSE_FILE=docker-compose.yml\n")
    return Layout(tmp_path)


def test_makes_env_and_secrets_once(layout: Layout) -> None:
    assert init.is_needed(layout)
    assert len(init.make(layout)) == 3
    assert not init.is_needed(layout)
    before = layout.api_keys.read_bytes()
    layout.env_file.write_text("MODEL=mine\n")
    assert init.make(layout) == []
    assert layout.api_keys.read_bytes() == before
    assert layout.env_file.read_text() == "MODEL=mine\n"


def test_modes_let_a_container_read_and_others_not(layout: Layout) -> None:
    init.make(layout)
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (layout.secrets, layout.hf_token, layout.api_keys.parent, layout.api_keys)
    ]
    assert modes == [0o700, 0o444, 0o755, 0o444]


def test_a_file_lost_later_is_not_replaced_by_itself(layout: Layout) -> None:
    init.make(layout)
    layout.api_keys.unlink()
    assert not init.is_needed(layout)


@pytest.mark.parametrize(
    ("current", "mode", "expected"),
    [
        ("", "gpu", "docker-compose.yml"),
        ("", "cpu", "docker-compose.yml:compose/cpu.yml"),
        ("docker-compose.yml:compose/cpu.yml", "gpu", "docker-compose.yml"),
        ("docker-compose.yml:compose/tls.yml", "cpu",
         "docker-compose.yml:compose/cpu.yml:compose/tls.yml"),
        ("docker-compose.yml:compose/cpu.yml:my.yml", "cpu",
         "docker-compose.yml:compose/cpu.yml:my.yml"),
        ("docker-compose.yml:my.yml", "local", "docker-compose.yml:my.yml"),
    ],
)  # fmt: skip
def test_compose_file(current: str, mode: Mode, expected: str) -> None:
    assert init.compose_file(current, mode) == expected


def test_the_environment_wins_over_the_managed_line(layout: Layout) -> None:
    init.make(layout)
    before = layout.env_file.read_text()
    init.keep_compose_file(layout, config.read(layout, {"COMPOSE_FILE": "mine.yml"}), "cpu")
    assert layout.env_file.read_text() == before
    init.keep_compose_file(layout, config.read(layout, {}), "cpu")
    assert "COMPOSE_FILE=docker-compose.yml:compose/cpu.yml\n" in layout.env_file.read_text()
