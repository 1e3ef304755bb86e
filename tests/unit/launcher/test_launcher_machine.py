"""The machine check, on facts as they were captured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from launcher import preflight
from launcher.host import gather, machine
from launcher.host.machine import Facts, Gpus
from launcher.model import auto
from launcher.options.settings import load

GIB = 2**30
GOOD = Facts(
    gpus=Gpus(whole=2),
    visible_devices=None,
    launch_blocking=None,
    disks={Path("/cache"): 10 * GIB},
    shm_free=8 * GIB,
    memory_free=64 * GIB,
    weights=GIB,
)
ONE_H200 = "GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
WITH_SLICES = ONE_H200 + (
    "  MIG 3g.71gb     Device  0: (UUID: MIG-11111111-1111-1111-1111-111111111111)\n"
    "  MIG 3g.71gb     Device  1: (UUID: MIG-22222222-2222-2222-2222-222222222222)\n"
)


def problems(facts: Facts, **environ: str) -> tuple[str, ...]:
    return machine.judge(load(environ), facts).problems


def test_a_good_machine() -> None:
    assert machine.judge(load({"TENSOR_PARALLEL_SIZE": "2"}), GOOD) == machine.Verdict((), ())


def test_listing() -> None:
    assert gather.parse_gpus(ONE_H200) == Gpus(whole=1)
    assert gather.parse_gpus(WITH_SLICES) == Gpus(whole=1, slices=2)
    assert gather.parse_gpus("No devices found.\n").error == "nvidia-smi lists no GPU"


@pytest.mark.parametrize(
    ("devices", "count"),
    [(None, 4), ("0,1", 2), ("3", 1), ("0,9,1", 1), ("-1,0", 0), ("none", 0), ("0,0,0,0,0", 4),
     ("GPU-5c1,GPU-77a", 2), (" 0 , 2 ", 2)],
)  # fmt: skip
def test_visible_devices(devices: str | None, count: int) -> None:
    assert machine.visible(Gpus(whole=4), devices) == count


def test_too_few_gpus() -> None:
    (line,) = problems(replace(GOOD, gpus=Gpus(whole=1)), TENSOR_PARALLEL_SIZE="2")
    assert line.startswith("GPU: found 1; wanted 2")
    (line,) = problems(replace(GOOD, visible_devices="0"), TENSOR_PARALLEL_SIZE="2")
    assert "found 1 (CUDA_VISIBLE_DEVICES=0)" in line


def test_no_gpu_and_slices() -> None:
    (line,) = problems(replace(GOOD, gpus=Gpus(error="there is no nvidia-smi here")))
    assert "there is no nvidia-smi here" in line
    (line,) = problems(replace(GOOD, gpus=Gpus(whole=1, slices=2)), TENSOR_PARALLEL_SIZE="2")
    assert "MIG" in line
    assert not problems(replace(GOOD, gpus=Gpus(whole=1, slices=2)))


def test_launch_blocking() -> None:
    (line,) = problems(replace(GOOD, launch_blocking="1"))
    assert line.startswith("CUDA_LAUNCH_BLOCKING: found 1")
    assert not problems(replace(GOOD, launch_blocking="0"))
    assert not problems(replace(GOOD, launch_blocking="1"), REQUIRE_CUDA_GRAPHS="false")
    assert not problems(replace(GOOD, launch_blocking="1"), ENGINE_DEBUG="1")


def test_shared_memory_is_a_note_and_only_with_several_gpus() -> None:
    small = replace(GOOD, shm_free=64 * 2**20)
    assert machine.judge(load({}), small).notes == ()
    found = machine.judge(load({"TENSOR_PARALLEL_SIZE": "2"}), small)
    assert found.problems == ()
    assert "64 MiB" in found.notes[0]


def test_disks() -> None:
    (line,) = problems(replace(GOOD, disks={Path("/cache"): 5 * 2**20}))
    assert line.startswith("/cache: found 5 MiB free")
    (line,) = problems(replace(GOOD, disks={Path("/cache"): None}))
    assert "not writable" in line


def test_memory_on_a_cpu() -> None:
    tight = replace(GOOD, memory_free=3 * GIB)
    (line,) = problems(tight, ENGINE_DEVICE="cpu")
    assert line.startswith("memory: found 3.0 GiB free; wanted 3.5 GiB")
    assert not problems(tight)
    assert not problems(tight, ENGINE_DEVICE="cpu", VLLM_EXTRA_ARGS="--kv-cache-memory-bytes 256M")


def test_memory_of_a_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    8388608 kB\n")
    assert gather.free_memory(meminfo, tmp_path) == 8 * GIB
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1\n")
    assert gather.free_memory(meminfo, tmp_path) == 8 * GIB
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    assert gather.free_memory(meminfo, tmp_path) == 2 * GIB
    assert gather.free_memory(tmp_path / "none", tmp_path) is None


def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program on PATH in nvidia-smi's place, as an operator's shell would find it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gather.list_gpus().error == "there is no nvidia-smi here"
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{ONE_H200}'\n")
    program.chmod(0o755)
    assert gather.list_gpus() == Gpus(whole=1)
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because of the driver.'\nexit 9\n")
    assert gather.list_gpus().error == "NVIDIA-SMI has failed because of the driver."


def test_auto_by_memory() -> None:
    assert auto.parse("143771\n143771\n") == [143771, 143771]
    assert auto.parse("[N/A]\n\n") == []
    assert auto.choose(143_771) == "Qwen/Qwen3-30B-A3B-Instruct-2507"
    assert auto.choose(46_068) == "Qwen/Qwen2.5-14B-Instruct"
    assert auto.choose(20_475) == "Qwen/Qwen3-4B-Instruct-2507"
    assert auto.choose(0) == "Qwen/Qwen2.5-0.5B-Instruct"
    assert list(auto.BY_MEMORY) == sorted(auto.BY_MEMORY, reverse=True)


@pytest.mark.parametrize(
    ("ranks", "config", "refused"),
    [
        (1, {"num_attention_heads": 9}, False),
        (3, {"num_attention_heads": 9}, False),
        (2, {"num_attention_heads": 9}, True),
        (2, {"text_config": {"num_attention_heads": 9}, "num_attention_heads": 8}, True),
        (8, {}, False),
        (8, {"num_attention_heads": "many"}, False),
    ],
)
def test_each_rank_takes_the_same_number_of_heads(
    ranks: int, config: dict[str, object], refused: bool
) -> None:
    found = preflight.heads(ranks, config)
    assert bool(found) is refused
    if refused:
        assert "wanted a divisor (1, 3, 9)" in found[0]


def test_a_config_that_is_not_there_or_broken(tmp_path: Path) -> None:
    assert preflight.read_config(tmp_path) == {}
    (tmp_path / "config.json").write_text("[1]")
    assert preflight.read_config(tmp_path) == {}
    (tmp_path / "config.json").write_text('{"num_attention_heads": 9}')
    assert preflight.read_config(tmp_path) == {"num_attention_heads": 9}
