"""GPUs as nvidia-smi tells them, on captured output; the judges, on single fields."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from stackctl.doctor import cards, gpumemory, gpus, xids
from stackctl.doctor.cards import App, Card
from stackctl.doctor.checks import Check

DATA = Path(__file__).parent / "data"
HELP = (DATA / "nvidia-smi-help-query-gpu.txt").read_text(encoding="utf-8")
GIB = 1 << 30


def card(index: int = 0, slices: int = 0, **fields: str) -> Card:
    """Double underscores stand for dots."""
    told = {"index": str(index), "name": "NVIDIA H200", "uuid": f"GPU-{index}"}
    return Card(told | {name.replace("__", "."): text for name, text in fields.items()}, slices)


def one(found: list[Check], status: str, *words: str) -> None:
    (check,) = found
    assert check.status == status, check.line
    assert all(word in check.line for word in words), check.line
    assert check.wanted
    assert check.fix


def test_all_wanted_fields_are_known_to_driver_580() -> None:
    asked = cards.choose(cards.parse_help(HELP))
    assert list(asked) == [names[0] for names in cards.FIELDS]
    assert all(ours == theirs for ours, theirs in asked.items())


def test_names_of_older_drivers_are_asked_for_and_what_they_lack_is_not() -> None:
    known = cards.parse_help(HELP.replace('"clocks_event_reasons.hw_slowdown" or ', "")
                             .replace('"fabric.state"', ""))  # fmt: skip
    asked = cards.choose(known)
    assert asked["clocks_event_reasons.hw_slowdown"] == "clocks_throttle_reasons.hw_slowdown"
    assert "fabric.state" not in asked
    assert set(cards.choose(frozenset())) == cards.ALWAYS


def test_a_captured_answer() -> None:
    """The header of the capture is the list of fields; the doctor asks without units."""
    header, *rows = csv.reader(
        (DATA / "nvidia-smi-query-h200.csv").read_text(encoding="utf-8").splitlines(),
        skipinitialspace=True,
    )
    names = tuple(name.split(" ")[0] for name in header)
    (found,) = cards.parse("\n".join(", ".join(row) for row in rows), names)
    assert found.get("driver_version") == "580.159.04"
    assert (found.number("temperature.gpu"), found.get("compute_cap")) == (37.0, "9.0")
    assert found.get("fabric.state") == found.get("retired_pages.pending") == ""
    assert found.broken == ""


@pytest.mark.parametrize(
    "text",
    ["[N/A]", "N/A", "[Not Supported]", "ERR!", "[Requested functionality has been deprecated]",
     "[Insufficient Permissions]", "[Unknown Error]", ""],
)  # fmt: skip
def test_what_is_not_told_is_left_out(text: str) -> None:
    (found,) = cards.parse(f"0, {text}", ("index", "fabric.state"))
    assert found.fields == {"index": "0"}


def test_lines_that_are_no_row_are_passed_over() -> None:
    assert cards.parse("Warning: infoROM is corrupted\n0, x\n", ("index", "name"))[0].index == "0"
    assert len(cards.parse("Warning: infoROM is corrupted\n0, x\n", ("index", "name"))) == 1


@pytest.mark.parametrize("word", ["GPU is lost", "GPU requires reset"])
def test_a_gpu_that_is_gone_fails(word: str) -> None:
    (found,) = cards.parse(f"0, [{word}], 580.1", ("index", "memory.used", "driver_version"))
    assert found.broken == word
    one(gpus.judge([found], 1), "fail", word, "reboot")


def test_instances_belong_to_the_gpu_above_them() -> None:
    listing = (
        "GPU 0: NVIDIA H200 (UUID: GPU-0)\nGPU 1: NVIDIA H200 (UUID: GPU-1)\n"
        "  MIG 3g.71gb     Device  0: (UUID: MIG-a)\n  MIG 3g.71gb     Device  1: (UUID: MIG-b)\n"
    )
    found = cards.with_slices([card(0), card(1)], listing)
    assert [one.slices for one in found] == [0, 2]


def test_processes_may_have_commas_in_their_names() -> None:
    text = "7, GPU-0, 512, python a, b\n8, GPU-0, [N/A], x\n[Not Found], GPU-0, 1, y\n"
    assert cards.parse_apps(text) == (
        App(7, "python a, b", "GPU-0", 512 << 20), App(8, "x", "GPU-0", None),
    )  # fmt: skip


def test_only_gpus_that_are_handed_over_are_judged() -> None:
    bad = card(1, remapped_rows__failure="Yes", mig__mode__current="Enabled")
    assert gpus.judge([card(0), bad], 1) == []
    found = gpus.judge([card(0), bad], 2)
    assert [check.name for check in found] == ["mig", "health"]


def test_equal_findings_are_one_line() -> None:
    found = gpus.judge([card(i, persistence_mode="Disabled") for i in range(3)], 3)
    one(found, "warn", "persistence mode off: GPU 0, 1, 2 (NVIDIA H200)", "nvidia-persistenced")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"gpu_recovery_action": "Reboot"}, "fail", "'Reboot'"),
        ({"gpu_recovery_action": "Drain P2P"}, "warn", "'Drain P2P'"),
        ({"compute_mode": "Prohibited"}, "fail", "-c 0"),
        ({"compute_mode": "Exclusive_Process"}, "warn", "Exclusive_Process"),
        ({"compute_cap": "7.0"}, "fail", "7.5 or newer"),
        ({"mig__mode__current": "Disabled", "mig__mode__pending": "Enabled"}, "warn", "reset"),
        ({"clocks_event_reasons__hw_thermal_slowdown": "Active"}, "warn", "too hot"),
        ({"clocks_event_reasons__sw_thermal_slowdown": "Active"}, "warn", "temperature limit"),
    ],
)
def test_a_field_and_its_verdict(fields: dict[str, str], status: str, words: str) -> None:
    one(gpus.judge([card(**fields)], 1), status, words)


def test_a_sound_gpu_and_one_that_tells_little_are_fine() -> None:
    sound = card(
        compute_cap="9.0", persistence_mode="Enabled", compute_mode="Default",
        mig__mode__current="Disabled", mig__mode__pending="Disabled", gpu_recovery_action="None",
        remapped_rows__failure="No", remapped_rows__pending="No", fabric__state="Completed",
        fabric__status="Success", clocks_event_reasons__hw_slowdown="Not Active",
    )  # fmt: skip
    assert gpus.judge([sound], 1) == []
    assert gpus.judge([card()], 1) == []


@pytest.mark.parametrize(
    ("state", "status", "words"),
    [("Not Started", "", "Not Started"), ("In Progress", "", "In Progress"),
     ("Completed", "Failure", "Completed (Failure)")],
)  # fmt: skip
def test_the_fabric_of_one_gpu_stops_all(state: str, status: str, words: str) -> None:
    good = card(0, fabric__state="Completed", fabric__status="Success")
    bad = card(1, fabric__state=state, fabric__status=status, driver_version="580.1")
    one(gpus.judge([good, bad], 1), "fail", words, "nvidia-fabricmanager", "580.1")
    assert gpus.judge([bad], 1) == []


def full(free: int, total: int = 100_000) -> Card:
    sizes = {"memory__total": total, "memory__free": free, "memory__used": total - free}
    return card(**{name: str(size) for name, size in sizes.items()})


def test_memory_that_others_hold() -> None:
    other = App(42, "/opt/x/train --big", "GPU-0", 40 * GIB, cgroup="0::/user.slice")
    found = gpumemory.judge([full(60_000)], (other,), 0.9, "")
    one(found, "fail", "58.6 GiB free", "train (pid 42, 40.0 GiB)", "UTILIZATION=0.59", "kill 42")
    one(gpumemory.judge([full(60_000)], (), 0.9, ""), "fail", "fuser")
    one(gpumemory.judge([full(60_000)], (other,), 0.5, ""), "warn", "train")
    assert gpumemory.judge([full(99_000)], (), 0.9, "") == []
    assert gpumemory.judge([full(60_000)], (), 0.5, "") == []


def test_this_stacks_own_engine_may_hold_its_gpu() -> None:
    ours = App(1, "VLLM::EngineCore", "GPU-0", 90 * GIB, cgroup="0::/docker-0a1b2c3d4e5f66.scope")
    other = App(2, "x", "GPU-0", None, cgroup="0::/")
    assert gpumemory.judge([full(5_000)], (ours,), 0.9, "0a1b2c3d4e5f") == []
    found = gpumemory.judge([full(5_000)], (ours, other), 0.9, "0a1b2c3d4e5f")
    one(found, "warn", "x (pid 2, memory not told)")
    one(gpumemory.judge([full(5_000)], (ours,), 0.9, ""), "fail", "EngineCore")


def test_processes_of_another_gpu_are_not_in_the_way() -> None:
    assert gpumemory.judge([full(99_000)], (App(2, "x", "GPU-7", GIB),), 0.9, "") == []


def test_a_gpu_whose_memory_is_not_told_is_not_judged_by_it() -> None:
    other = App(2, "x", "GPU-0", GIB)
    assert gpumemory.judge([card(memory__used="5")], (), 0.9, "") == []
    one(gpumemory.judge([card(memory__used="5")], (other,), 0.9, ""), "warn", "x (pid 2")


def test_xids() -> None:
    log = "NVRM: Xid (PCI:0000:00:06): 79, pid=1\nNVRM: Xid (PCI:0000:00:06): 13, pid=2\n"
    assert xids.parse(log) == [79, 13]
    one(xids.judge([79, 13, 79]), "warn", "Xid 79 in")
    assert xids.judge([13, 31]) == []
