"""compose/pinned.yml: what is pinned, what became stale, and COMPOSE_FILE around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from common.checkout import ROOT, Checkout
from stackctl import config, init, pins
from stackctl.doctor import examine
from stackctl.errors import StackError
from stackctl.layout import Layout
from stackctl.mode import Mode

DIGEST = "sha256:" + "d" * 64
ALL = ["docker-compose.yml", pins.CPU_OVERLAY, pins.WORKERS_OVERLAY]


@pytest.fixture
def layout(checkout: Checkout) -> Layout:
    return Layout(checkout.root)


def settings(layout: Layout, **values: str) -> config.Config:
    return config.read(layout, values)


def pinned(layout: Layout) -> pins.Pins:
    both = [*pins.needed(layout, settings(layout), []), *pins.needed(layout, settings(layout), ALL)]
    return pins.Pins(dict.fromkeys(both, DIGEST), "2026-12-01T10:00:00Z")


def test_the_images_are_read_from_the_files_that_build_them(layout: Layout) -> None:
    found = [
        *pins.needed(layout, settings(layout), []),
        *pins.needed(layout, settings(layout), ALL),
    ]
    names = {image.rpartition(":")[0] for image in found}
    wanted = {"vllm/vllm-openai", "vllm/vllm-openai-cpu", "python", "nginx", "valkey/valkey"}
    assert names == wanted
    for image in found:  # the very words stand where the images are made
        files = [*ROOT.glob("docker/*/Dockerfile"), *ROOT.glob("compose/*.yml")]
        texts = [path.read_text() for path in [*files, ROOT / "docker-compose.yml"]]
        assert any(image in text for text in texts), image


def test_no_base_image_escapes_the_pins(layout: Layout) -> None:
    """Each FROM is an argument that a pin sets, or a stage of the same file."""
    arguments = {"VLLM_IMAGE", *(argument for _, argument in pins.BASES)}
    for path in ROOT.glob("docker/*/Dockerfile"):
        lines = [line.split() for line in path.read_text().splitlines()]
        stages = {words[3] for words in lines if words[:1] == ["FROM"] and len(words) > 3}
        for words in lines:
            if words[:1] == ["FROM"] and words[1] not in stages:
                assert words[1].strip("${}") in arguments, f"{path}: {words[1]}"


def test_the_overlay_by_mode(layout: Layout) -> None:
    found = pinned(layout)
    gpu = pins.services(layout, settings(layout), found, ["docker-compose.yml"])
    cpu = pins.services(layout, settings(layout), found, ALL)
    engine = gpu["model"]["build"]["args"]["VLLM_IMAGE"]
    assert engine == f"vllm/vllm-openai:v0.33.0@{DIGEST}"
    assert cpu["model"]["build"]["args"]["VLLM_IMAGE"].startswith("vllm/vllm-openai-cpu:")
    assert "valkey" not in gpu  # alone it would be a service without its overlay's limits
    assert cpu["valkey"] == {"image": f"valkey/valkey:8.1-alpine@{DIGEST}"}


def test_an_edited_image_is_missing(layout: Layout) -> None:
    found, files = pinned(layout), ["docker-compose.yml"]
    assert pins.missing(layout, settings(layout), found, files) == []
    edited = settings(layout, VLLM_IMAGE="vllm/vllm-openai:v0.32.0-cu129")
    assert pins.missing(layout, edited, found, files) == ["vllm/vllm-openai:v0.32.0-cu129"]
    # The old digest is not left in force for it.
    assert "model" not in pins.services(layout, edited, found, files)
    own = settings(layout, VLLM_IMAGE=f"mine/vllm:1@{DIGEST}")
    assert pins.missing(layout, own, found, files) == []


def test_what_is_written_is_read(layout: Layout) -> None:
    assert pins.read(layout) is None
    pins.write(layout, settings(layout), pinned(layout), ALL)
    assert pins.read(layout) == pinned(layout)
    path = layout.root / pins.OVERLAY
    for broken in ("services: {}\n", path.read_text() + "x", '{"x-pins": {"images": 3}}', "[]"):
        path.write_text(broken)
        with pytest.raises(StackError, match=r"that was edited; .* fix: make pin"):
            pins.read(layout)


def test_a_change_of_mode_needs_no_network(layout: Layout) -> None:
    pins.write(layout, settings(layout), pinned(layout), ["docker-compose.yml"])
    init.keep_compose_file(layout, settings(layout), "cpu")
    files = settings(layout).get("COMPOSE_FILE")
    assert files == f"docker-compose.yml:compose/cpu.yml:{pins.OVERLAY}"
    text = (layout.root / pins.OVERLAY).read_text()
    services = json.loads(text.removeprefix(pins.HEADER))["services"]
    assert "vllm-openai-cpu" in services["model"]["build"]["args"]["VLLM_IMAGE"]


def test_pin_without_a_network_changes_nothing(checkout: Checkout) -> None:
    before = (checkout.root / ".env").read_text()
    done = checkout.stack("pin", env={"HTTPS_PROXY": "http://127.0.0.1:9"})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no answer from registry-1.docker.io" in done.stderr
    assert not (checkout.root / pins.OVERLAY).exists()
    assert (checkout.root / ".env").read_text() == before


def test_unpin(checkout: Checkout, layout: Layout) -> None:
    pins.write(layout, settings(layout), pinned(layout), [])
    assert init.name_pins(layout, settings(layout))
    assert pins.OVERLAY in (checkout.root / ".env").read_text()
    assert "removed compose/pinned.yml" in checkout.stack("pin", "--unpin").stdout
    assert "COMPOSE_FILE=docker-compose.yml\n" in (checkout.root / ".env").read_text()
    assert "nothing was pinned" in checkout.stack("pin", "--unpin").stdout


@pytest.mark.parametrize(
    ("current", "pinned", "wanted"),
    [
        ("", True, "docker-compose.yml:compose/pinned.yml"),
        ("docker-compose.yml:compose/pinned.yml:my.yml", True,
         "docker-compose.yml:my.yml:compose/pinned.yml"),
        ("docker-compose.yml:compose/pinned.yml", False, "docker-compose.yml"),
    ],
)  # fmt: skip
def test_the_digests_come_last(current: str, pinned: bool, wanted: str) -> None:
    assert init.with_pins(current, pinned=pinned) == wanted
    assert init.compose_file(current, "gpu", pinned=pinned) == wanted


def verdict(layout: Layout, mode: Mode = "gpu", **shell: str) -> list[tuple[str, str]]:
    found = examine.pinned(layout, config.read(layout, shell), mode)
    return [(check.status, check.line) for check in found]


def test_doctor_notices_what_was_edited_since(layout: Layout) -> None:
    assert verdict(layout) == []
    pins.write(layout, settings(layout), pinned(layout), ["docker-compose.yml"])
    assert verdict(layout) == [("ok", "images by digest, as of 2026-12-01T10:00:00Z")]
    assert verdict(layout, "cpu")[0][0] == "ok"
    assert verdict(layout, "local", VLLM_IMAGE="other/vllm:1") == []
    ((status, line),) = verdict(layout, VLLM_IMAGE="other/vllm:1")
    assert status == "fail"
    assert "no digest of other/vllm:1 in compose/pinned.yml" in line
    assert "fix: make pin" in line
    ((status, line),) = verdict(layout, COMPOSE_FILE="docker-compose.yml")
    assert status == "warn"
    assert "COMPOSE_FILE in the environment leaves out" in line
    (layout.root / pins.OVERLAY).write_text("edited")
    ((status, line),) = verdict(layout)
    assert (status, "fix: make pin" in line) == ("fail", True)


def test_git_does_not_take_it() -> None:
    assert f"{pins.OVERLAY}\n" in (Path(ROOT) / ".gitignore").read_text()
