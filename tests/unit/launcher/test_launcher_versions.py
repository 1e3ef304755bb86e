"""The tested matrix, and drivers held against builds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launcher.host import versions

ROOT = Path(__file__).parents[3]
MATRIX = versions.load()
NEWEST = "vllm/vllm-openai:v0.33.0"
OLDER = "vllm/vllm-openai:v0.32.0-cu129"


def needs(image: str) -> versions.Needs:
    found = versions.of_image(MATRIX, image)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("image", "driver", "tested"),
    [
        (NEWEST, "580.65.06", True),
        (f"{NEWEST}@sha256:{'0' * 64}", "580.65.06", True),
        (f"mirror.example:5000/vllm/vllm-openai:{NEWEST.partition(':')[2]}", "580.65.06", True),
        (f"{NEWEST}-x86_64", "580.65.06", True),
        (OLDER, "525.60.13", True),
        ("vllm/vllm-openai:v0.30.0", "580.65.06", False),
        ("vllm/vllm-openai:v0.28.0-cu129", "525.60.13", False),
        # Tags that move are as new as can be.
        ("vllm/vllm-openai", "580.65.06", False),
        ("vllm/vllm-openai:latest", "580.65.06", False),
        ("vllm/vllm-openai:latest-x86_64", "580.65.06", False),
        ("vllm/vllm-openai:nightly", "580.65.06", False),
        (f"vllm/vllm-openai:nightly-{'a' * 40}", "580.65.06", False),
    ],
)
def test_what_an_image_needs(image: str, driver: str, tested: bool) -> None:
    assert (needs(image).driver, needs(image).tested) == (driver, tested)


@pytest.mark.parametrize(
    "image",
    ["", f"vllm/vllm-openai@sha256:{'0' * 64}", "mine/engine:v0.33.0", "x:v1",
     "vllm/vllm-openai:v0.12.0", "vllm/vllm-openai-cpu:v0.33.0", "vllm/vllm-openai:v0.40.0-cu149"],
)  # fmt: skip
def test_images_that_tell_nothing(image: str) -> None:
    assert versions.of_image(MATRIX, image) is None


def test_an_old_driver_is_told_which_image_runs_on_it() -> None:
    line = versions.problem(MATRIX, needs(NEWEST), "535.183.01")
    assert line is not None
    assert line.startswith(
        f"driver: found 535.183.01; wanted 580.65.06 or newer for {NEWEST} (CUDA 13.0); fix:"
        f" VLLM_IMAGE={OLDER} in .env, which runs on this one, or install a newer driver"
    )


def test_a_driver_too_old_for_any_image() -> None:
    line = versions.problem(MATRIX, needs(OLDER), "470.223.02")
    assert line is not None
    assert "no tested image runs on this one" in line
    assert "VLLM_IMAGE" not in line


@pytest.mark.parametrize("driver", ["580.65.06", "580.159.04", "590.48.01", "[N/A]", ""])
def test_drivers_that_do_or_cannot_be_read(driver: str) -> None:
    assert versions.problem(MATRIX, needs(NEWEST), driver) is None


def test_575_runs_cuda_12_but_not_13() -> None:
    assert versions.problem(MATRIX, needs(NEWEST), "575.51.03") is not None
    assert versions.problem(MATRIX, needs(OLDER), "575.51.03") is None


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\n", "13.0"),
        ("cuda: str | None = '12.9'\n", "12.9"),
        ("cuda = '13.0'\n", "13.0"),
        ("cuda: Optional[str] = None\n", None),
        ("", None),
    ],
)
def test_the_installed_build_by_torchs_own_file(
    tmp_path: Path, text: str, cuda: str | None
) -> None:
    file = tmp_path / "version.py"
    file.write_text(f"__version__ = '2.14.0'\ndebug = False\n{text}hip = None\n")
    found = versions.of_torch(file, "0.33.0")
    assert (found.cuda if found else None) == cuda
    assert versions.of_torch(tmp_path / "none", "0.33.0") is None


def test_rows_are_complete_and_the_shipped_one_is_first() -> None:
    assert MATRIX[0].image == NEWEST
    for build in MATRIX:
        assert versions.numbers(build.driver)
        assert build.tried
        found = needs(build.image)
        assert (found.cuda, found.driver) == (build.cuda, build.driver)
        assert versions.OLDEST_DRIVER[int(build.cuda.partition(".")[0])] == build.driver


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "launcher.host.versions", *arguments],
        env={"PYTHONPATH": str(ROOT / "docker/engine")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_as_a_command() -> None:
    old = ask("--driver", "535.183.01")
    assert (old.returncode, old.stdout.count("\n")) == (1, 1)
    assert ask("--driver", "580.159.04", "--image", NEWEST).stdout == ""
    told = json.loads(ask("--driver", "535.1", "--image", "mine:1", "--json").stdout)
    assert told == {"problem": None, "needs": None}
    assert ask().returncode == 2
