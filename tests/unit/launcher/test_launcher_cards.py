"""GPUs as nvidia-smi lists them: what speaks against a start on them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launcher.host import cards, versions

H200 = (
    "0, GPU-11111111-1111-1111-1111-111111111111, NVIDIA H200, 580.159.04, 9.0, 143771, 143156,"
    " Disabled\n"
)
TWO = H200 + H200.replace("0, GPU-1", "1, GPU-2", 1)
L40S = "0, GPU-3, NVIDIA L40S, 595.80, 8.9, 46068, 45589, [N/A]\n"
OLD = "0, GPU-4, Tesla V100-SXM2-16GB, 535.183.01, 7.0, 16384, 16160, [N/A]\n"
SILENT = "0, GPU-5, NVIDIA GRID, [N/A], [N/A], [N/A], [N/A], [N/A]\n"


def test_what_is_read() -> None:
    (card,) = cards.parse(H200)
    assert (card.name, card.driver, card.capability) == ("NVIDIA H200", "580.159.04", (9, 0))
    assert (card.total, card.free, card.mig) == (143771 * cards.MIB, 143156 * cards.MIB, False)
    (silent,) = cards.parse(SILENT)
    assert (silent.capability, silent.total, silent.free) == (None, None, None)
    assert cards.parse("NVIDIA-SMI has failed\n\n0, a\n") == ()


@pytest.mark.parametrize(
    ("devices", "count", "indices"),
    [(None, 1, [0]), (None, 2, [0, 1]), ("1", 1, [1]), ("1,0", 1, [1]), ("GPU-2", 1, [1]),
     ("7", 1, []), (" 0 , 1 ", 2, [0, 1])],
)  # fmt: skip
def test_the_cards_an_engine_takes(devices: str | None, count: int, indices: list[int]) -> None:
    assert [card.index for card in cards.used(cards.parse(TWO), devices, count)] == indices


def test_a_driver_that_is_too_old_for_what_is_installed() -> None:
    matrix = versions.load()
    built = versions.Needs("vLLM 0.33.0", "13.0", "580.65.06", tested=True)
    line = cards.driver(cards.parse(OLD), built, matrix)
    assert line is not None
    assert line.startswith("driver: found 535.183.01; wanted 580.65.06 or newer for vLLM 0.33.0")
    assert cards.driver(cards.parse(H200), built, matrix) is None
    assert cards.driver(cards.parse(OLD), None, matrix) is None
    assert cards.driver(cards.parse(SILENT), built, matrix) is None


def test_code_for_old_gpus_is_in_no_image() -> None:
    line = cards.too_old(cards.parse(OLD))
    assert line is not None
    assert line.startswith("GPU: found Tesla V100-SXM2-16GB of compute capability 7.0; wanted 7.5")
    assert cards.too_old(cards.parse(L40S + SILENT)) is None


def test_mig_without_instances() -> None:
    on = tuple(replace(card, mig=True) for card in cards.parse(H200))
    line = cards.without_instances(on, slices=0)
    assert line is not None
    assert "nvidia-smi -i 0 -mig 0" in line
    assert cards.without_instances(on, slices=2) is None
    assert cards.without_instances(cards.parse(H200), slices=0) is None


def test_memory_that_others_hold() -> None:
    (card,) = cards.parse(H200)
    line = cards.crowded((replace(card, free=60_000 * cards.MIB),), 0.90)
    assert line is not None
    assert line.startswith(
        "GPU memory: found 58.6 GiB free of 140.4 on GPU 0 (NVIDIA H200); wanted"
    )
    assert "lower the share to 0.40" in line
    assert cards.crowded((replace(card, free=60_000 * cards.MIB),), 0.40) is None


@pytest.mark.parametrize("listing", [H200, L40S, SILENT])
@pytest.mark.parametrize("share", [0.5, 0.92, 1.0])
def test_an_idle_gpu_is_free_enough(listing: str, share: float) -> None:
    assert cards.crowded(cards.parse(listing), share) is None
