"""Compile caches: a folder for each image and GPU, the oldest removed, none that is in use."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from launcher.host import caches
from launcher.host.cards import Card

CARD = Card(0, "GPU-1", "NVIDIA H200", "580.159.04", (9, 0), None, None, mig=False)


def use(root: Path, name: str, when: int) -> Path:
    with caches.held(root, {"gpu": name}) as folder:
        (folder / "vllm").mkdir(exist_ok=True)
    os.utime(folder / "key.json", (when, when))
    return folder


def test_each_variable_lies_below_the_folder(tmp_path: Path) -> None:
    found = caches.environment(tmp_path)
    assert found["VLLM_CACHE_ROOT"] == f"{tmp_path}/vllm"
    assert all(value.startswith(f"{tmp_path}/") for value in found.values())


def test_what_changes_the_key_and_what_does_not() -> None:
    usual = caches.key(caches.meaning({}, (CARD,)))
    assert usual == caches.key(caches.meaning({"NGINX_PORT": "1"}, (CARD, replace(CARD, index=1))))
    others = [
        caches.meaning({"VLLM_BUILD_COMMIT": "abc"}, (CARD,)),
        caches.meaning({}, (replace(CARD, name="NVIDIA L40S"),)),
        caches.meaning({}, (replace(CARD, driver="590.48.01"),)),
        caches.meaning({}, (replace(CARD, capability=(8, 9)),)),
        caches.meaning({}, ()),
    ]
    keys = {usual, *map(caches.key, others)}
    assert len(keys) == 6
    assert all(caches.KEY.fullmatch(one) for one in keys)


def test_a_folder_says_what_it_is_for(tmp_path: Path) -> None:
    means = caches.meaning({"VLLM_IMAGE_TAG": "v0.33.0"}, (CARD,))
    with caches.held(tmp_path / "new", means) as folder:
        assert json.loads((folder / "key.json").read_text()) == means
        assert means["gpu"] == "NVIDIA H200 (9, 0)"


def test_the_oldest_goes_and_a_foreign_folder_stays(tmp_path: Path) -> None:
    foreign = tmp_path / "notes"
    foreign.mkdir()
    oldest, second, third = (use(tmp_path, name, at) for at, name in enumerate("abc", 1))
    fourth = use(tmp_path, "d", 4)
    assert not oldest.exists()
    assert [path.exists() for path in (second, third, fourth, foreign)] == [True] * 4


def test_one_in_use_is_never_removed(tmp_path: Path) -> None:
    with caches.held(tmp_path, {"gpu": "a"}) as busy:
        os.utime(busy / "key.json", (1, 1))
        for at, name in enumerate("bcde", 2):
            use(tmp_path, name, at)
        assert busy.exists()
    use(tmp_path, "f", 9)
    assert not busy.exists()


def test_one_that_lost_its_note_counts_as_oldest(tmp_path: Path) -> None:
    bare = tmp_path / caches.key({"gpu": "z"})
    bare.mkdir()
    for at, name in enumerate("abc", 1):
        use(tmp_path, name, at)
    assert not bare.exists()


def test_a_place_that_cannot_be_made() -> None:
    with pytest.raises(OSError), caches.held(Path("/proc/1/nothing"), {}):  # noqa: PT011 - any
        pass
