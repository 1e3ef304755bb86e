"""The real `scripts/stack doctor` on captured GPU hosts: each trouble is one line with its fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from common import gpu_host
from common.checkout import Checkout

# What is read from the host that runs the tests; "model" asks a hub that is not there.
OF_THIS_HOST = {"disk", "memory", "port", "kernel", "swap", "shm", "model"}
NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9"}


def doctor(checkout: Checkout, host: str, **settings: str) -> dict[str, Any]:
    gpu_host.install(host, checkout.bin)
    checkout.set_env(STACK_MODE="gpu", **NO_HUB | settings)
    done = checkout.stack("doctor", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    return found


def lines(found: dict[str, Any], *status: str) -> list[str]:
    """`NAME: found …; wanted …; fix: …` of the checks that have one of these states."""
    return [
        f"{c['name']}: found {c['found']}; wanted {c['wanted']}; fix: {c['fix']}"
        for c in found["checks"]
        if c["status"] in (status or ("fail",)) and c["name"] not in OF_THIS_HOST
    ]


@pytest.mark.parametrize("host", ["h200", "h200-x2", "h100-x8"])
def test_good_hosts_have_nothing_to_say(checkout: Checkout, host: str) -> None:
    found = doctor(checkout, host, TENSOR_PARALLEL_SIZE=host[-1] if "-x" in host else "1")
    assert lines(found, "fail", "warn") == []
    names = {check["name"] for check in found["checks"]}
    assert {"driver", "toolkit", "gpu", "kernel", "docker", "compose"} <= names


def test_the_facts_are_told_too(checkout: Checkout) -> None:
    found = doctor(checkout, "h200-x2")
    around = found["facts"]["gpu_host"]
    assert [card["driver_version"] for card in around["gpus"]] == ["580.159.04"] * 2
    assert around["docker_gpus"] == [f"nvidia.com/gpu={name}" for name in (0, 1, "all")]
    assert around["container_toolkit"]["version"] == "1.19.1"
    assert found["facts"]["host"]["gpus"]["names"] == ["NVIDIA H200"] * 2
    assert sorted(found) == ["checks", "facts", "mode", "ok"]


@pytest.mark.parametrize(
    ("host", "settings", "wanted"),
    [
        ("driver-535", {}, "driver: found 535.183.01; wanted 580.65.06 or newer for vllm/"
         "vllm-openai:v0.33.0 (CUDA 13.0); fix: VLLM_IMAGE=vllm/vllm-openai:v0.32.0-cu129"),
        ("h200", {"TENSOR_PARALLEL_SIZE": "2"}, "gpu: found TENSOR_PARALLEL_SIZE=2 and 1 GPU ("
         "NVIDIA H200); wanted at most the number of GPUs; fix: TENSOR_PARALLEL_SIZE=1 in .env"),
        ("mig-empty", {}, "mig: found MIG on without instances: GPU 0 (NVIDIA H200); wanted a whole"
         " GPU, or instances on it (vLLM sees no device so); fix: end what uses the GPU, then: sudo"
         " nvidia-smi -i 0 -mig 0"),
        ("no-toolkit", {}, "toolkit: found no nvidia-container-toolkit; wanted the NVIDIA container"
         " toolkit registered with Docker; fix: install nvidia-container-toolkit"),
        ("toolkit-unregistered", {}, "toolkit: found toolkit 1.19.1, unknown to Docker; wanted the"
         " NVIDIA container toolkit registered with Docker; fix: sudo nvidia-ctk runtime"),
        ("h100-x8-no-fabric", {"TENSOR_PARALLEL_SIZE": "8"}, "fabric: found NVSwitch fabric Not"
         " Started; wanted Completed; fix: sudo systemctl restart nvidia-fabricmanager"),
        ("v100", {}, "gpu: found compute capability 7.0: GPU 0 (Tesla V100-SXM2-16GB); wanted 7.5"),
    ],
)  # fmt: skip
def test_one_trouble_is_one_line(
    checkout: Checkout, host: str, settings: dict[str, str], wanted: str
) -> None:
    (line,) = lines(doctor(checkout, host, **settings))
    assert line.startswith(wanted)


def test_the_image_for_an_old_driver_is_taken(checkout: Checkout) -> None:
    older = {"VLLM_IMAGE": "vllm/vllm-openai:v0.32.0-cu129"}
    assert lines(doctor(checkout, "driver-535", **older)) == []


@pytest.mark.parametrize("tag", ["latest", "nightly"])
def test_an_old_driver_does_not_pass_with_a_tag_that_moves(checkout: Checkout, tag: str) -> None:
    found = lines(doctor(checkout, "driver-535", VLLM_IMAGE=f"vllm/vllm-openai:{tag}"))
    assert any(f"wanted 580.65.06 or newer for vllm/vllm-openai:{tag}" in line for line in found)


def test_a_build_that_tells_nothing_of_its_cuda_is_not_called_good(checkout: Checkout) -> None:
    image = f"vllm/vllm-openai@sha256:{'0' * 64}"
    found = doctor(checkout, "driver-535", VLLM_IMAGE=image)
    assert lines(found) == []
    assert any("not judged, since nothing tells its CUDA" in line for line in lines(found, "warn"))


def test_slices_serve_one_rank_with_a_warning_and_no_more(checkout: Checkout) -> None:
    one = doctor(checkout, "mig-two")
    assert lines(one) == []
    assert "MIG on with 2 instances" in lines(one, "warn")[0]
    two = lines(doctor(checkout, "mig-two", TENSOR_PARALLEL_SIZE="2"))
    assert any("slices can't talk to each other" in line for line in two)


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("hook-alone", "toolkit: found toolkit 1.19.1, not registered; wanted the NVIDIA container"
         " toolkit registered with Docker; fix: sudo nvidia-ctk runtime configure"),
        ("cdi-stale", "cdi: found no nvidia.com/gpu=1 among Docker's 2 CDI devices; wanted a"
         " specification of each GPU; fix: sudo systemctl restart nvidia-cdi-refresh"),
    ],
)  # fmt: skip
def test_what_may_work_is_a_warning(checkout: Checkout, host: str, wanted: str) -> None:
    ranks = "2" if host == "cdi-stale" else "1"
    found = doctor(checkout, host, TENSOR_PARALLEL_SIZE=ranks)
    assert lines(found) == []
    assert lines(found, "warn")[0].startswith(wanted)


def test_a_card_without_mig_and_with_persistence_off(checkout: Checkout) -> None:
    found = doctor(checkout, "l40s")
    assert lines(found) == []
    (line,) = lines(found, "warn")
    assert line.startswith("gpu: found persistence mode off: GPU 0 (NVIDIA L40S)")


def test_a_worn_host_says_everything(checkout: Checkout) -> None:
    found = doctor(checkout, "worn")
    failed, warned = "\n".join(lines(found)), "\n".join(lines(found, "warn"))
    for words in (
        "recovery action 'Reset'", "could not be remapped", "compute mode Prohibited",
        "in use: python3 (pid 4242, 58.6 GiB)", "or GPU_MEMORY_UTILIZATION=0.56 in .env",
    ):  # fmt: skip
        assert words in failed
    for words in (
        "3 uncorrected memory errors", "rows to be remapped", "more SRAM errors than",
        "slowed down by its hardware", "Xid 79 in the kernel's log", "MIG Disabled, Enabled",
        "toolkit 1.14.0", "CVE-2025-23266", "a rootless engine",
        "the systemd cgroup driver without CDI",
        "a clock that nobody sets",
    ):  # fmt: skip
        assert words in warned
    assert "Xid 13" not in warned


@pytest.mark.parametrize(
    ("host", "name", "words", "fix"),
    [
        ("no-driver", "gpu", "NVIDIA-SMI has failed because it couldn't", "reboot or reinstall"),
        ("nvml-mismatch", "gpu", "Driver/library version mismatch", "reboot: the driver was"),
        ("no-docker", "docker", "a GPU but no usable Docker engine", "get.docker.com | sh"),
    ],
)
def test_hosts_that_no_gpu_stack_starts_on(
    checkout: Checkout, host: str, name: str, words: str, fix: str
) -> None:
    """`doctor` says the rest, too, and `up` stops at once; neither falls back to a CPU."""
    found = doctor(checkout, host)
    assert found["mode"] == "gpu"
    (line,) = lines(found)
    assert line.startswith(f"{name}: ")
    assert words in line
    assert fix in line.partition("; fix: ")[2]
    assert {"settings", "hf token", "kernel"} <= {check["name"] for check in found["checks"]}
    done = checkout.stack("up", env={"STACK_MODE": "auto"})
    assert done.returncode == 1
    assert words in done.stderr
    assert fix in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("host", "settings", "words"),
    [
        ("driver-535", {}, "VLLM_IMAGE=vllm/vllm-openai:v0.32.0-cu129"),
        ("h200", {"TENSOR_PARALLEL_SIZE": "2"}, "TENSOR_PARALLEL_SIZE=1"),
        ("mig-empty", {}, "-mig 0"),
        ("no-toolkit", {}, "install nvidia-container-toolkit"),
    ],
)
def test_up_stops_before_anything_is_pulled(
    checkout: Checkout, host: str, settings: dict[str, str], words: str
) -> None:
    """The docker of these hosts fails on anything but questions about itself."""
    gpu_host.install(host, checkout.bin)
    checkout.set_env(STACK_MODE="gpu", **settings)
    done = checkout.stack("up")
    assert done.returncode == 1
    assert words in done.stderr
    assert "unexpected" not in done.stderr + done.stdout
    assert not (checkout.root / ".run" / "mode").exists()


def test_70b_on_24_gb_stops_up(checkout: Checkout, tmp_path: Path) -> None:
    host = gpu_host.load("l40s")
    host["gpus"][0] |= {"name": "NVIDIA L4", "memory.total": "23034", "memory.free": "22500"}
    gpu_host.install("l40s", checkout.bin)
    for program in (checkout.bin / "nvidia-smi", checkout.bin / "docker"):
        text = program.read_text()
        changed = tmp_path / "host.json"
        changed.write_text(json.dumps(host))
        program.write_text(text.replace(str(gpu_host.HOSTS / "l40s.json"), str(changed)))
    # Not the first run, so that the test does not depend on how much disk this host has.
    (checkout.root / ".run" / "mode").write_text("gpu\n")
    model = checkout.root / ".run" / "models" / "large"
    model.mkdir(parents=True)
    config = {
        "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "vocab_size": 128256,
        "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "tie_word_embeddings": False,
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(config))
    checkout.set_env(STACK_MODE="gpu", MODEL="/models/large")
    done = checkout.stack("up")
    assert done.returncode == 1
    assert "found large with 131.4 GiB of weights for each GPU; wanted at most" in done.stderr
    assert "it fits gpu-h100x8-640gb" in done.stderr


def test_no_capture_is_left_untried() -> None:
    text = Path(__file__).read_text()
    assert [name for name in gpu_host.names() if f'"{name}"' not in text] == []
