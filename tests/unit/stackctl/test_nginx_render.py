"""The renderer does what the image's envsubst does, and refuses what nginx would misread."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from stackctl.errors import StackError
from stackctl.nginx import render, start_command, substitute

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "nginx" / "templates"
VALUES = {
    "STACK_LISTEN": "127.0.0.1:8080",
    "STACK_GATEWAY": "127.0.0.1:8081",
    "STACK_RESOLVER": "127.0.0.1",
    "STACK_MAX_BODY": "1024",
    "STACK_CORS_ORIGINS": "none",
    "STACK_PREFIX": "/some/where",
    "STACK_ACCESS_LOG": "/dev/stdout",
    "STACK_ERROR_LOG": "stderr",
}


def test_only_our_names_are_replaced() -> None:
    text = "listen ${STACK_LISTEN}; set $host ${host} $STACK_LISTEN;"
    assert substitute(text, VALUES) == "listen 127.0.0.1:8080; set $host ${host} $STACK_LISTEN;"


def test_sub_paths_are_kept(tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "b.conf.template").write_text("x ${STACK_LISTEN};")
    (tmp_path / "in" / "README").write_text("not a template")
    assert render(tmp_path / "in", tmp_path / "out", VALUES) == [tmp_path / "out/a/b.conf"]
    assert (tmp_path / "out/a/b.conf").read_text() == "x 127.0.0.1:8080;"


def test_a_name_without_a_value_leaves_everything_as_it_was(tmp_path: Path) -> None:
    render(TEMPLATES, tmp_path, VALUES)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.conf")}
    missing = {name: value for name, value in VALUES.items() if name != "STACK_GATEWAY"}
    with pytest.raises(StackError, match="STACK_GATEWAY"):
        render(TEMPLATES, tmp_path, missing)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.conf")} == before


@pytest.mark.parametrize("value", ["", 'a"b', "a$b", "a\\b", "a\nb", "a'b", "a}b", "1; user x"])
def test_a_value_that_nginx_would_misread_is_refused(value: str) -> None:
    with pytest.raises(StackError, match="STACK_LISTEN"):
        substitute("${STACK_LISTEN}", {"STACK_LISTEN": value})


def test_a_file_of_an_earlier_version_goes_away(tmp_path: Path) -> None:
    render(TEMPLATES, tmp_path, VALUES)
    stale = tmp_path / "conf.d" / "old.conf"
    stale.write_text("server {}")
    (tmp_path / "nginx.pid").write_text("1")
    render(TEMPLATES, tmp_path, VALUES)
    assert not stale.exists()
    assert (tmp_path / "nginx.pid").exists()


def test_no_templates_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="templates"):
        render(tmp_path, tmp_path / "out", VALUES)


def test_workers_stay_root_only_under_root(tmp_path: Path) -> None:
    assert start_command("nginx", tmp_path, as_root=False)[-1] == "daemon off;"
    assert start_command("nginx", tmp_path, as_root=True)[-1] == "daemon off; user root;"


@pytest.mark.skipif(shutil.which("envsubst") is None, reason="envsubst (gettext) is not installed")
def test_it_equals_envsubst(tmp_path: Path) -> None:
    names = " ".join(f"${{{name}}}" for name in VALUES)
    for written in render(TEMPLATES, tmp_path, VALUES):
        template = TEMPLATES / f"{written.relative_to(tmp_path)}.template"
        expected = subprocess.run(
            ["envsubst", names],
            input=template.read_bytes(),
            capture_output=True,
            env={**os.environ, **VALUES},
            check=True,
        )
        assert written.read_bytes() == expected.stdout
