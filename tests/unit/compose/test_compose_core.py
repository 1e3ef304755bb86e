"""The rendered stack is the one of the design: networks, ports, hardening, devices, secrets."""

from __future__ import annotations

import tomllib

import pytest
from common.compose import CPU, FILE_SETS, ROOT, Render, Rendered

CORE = ("nginx", "gateway", "vllm", "model")
BOTH = pytest.mark.parametrize("files", FILE_SETS, ids=["gpu", "cpu"])


@BOTH
def test_the_services_are_the_core(render: Render, files: str) -> None:
    rendered = render(files=files)
    assert rendered.code == 0, rendered.stderr
    assert set(rendered.model["services"]) == set(CORE)


@BOTH
def test_nothing_warns_without_any_setting(render: Render, files: str) -> None:
    assert render(files=files).stderr == ""


@BOTH
def test_networks_are_those_of_the_design(render: Render, files: str) -> None:
    rendered = render(files=files)
    joined = {name: sorted(rendered.service(name)["networks"]) for name in CORE}
    assert joined == {
        "nginx": ["app", "edge"],
        "gateway": ["app", "engine"],
        "vllm": ["engine"],
        "model": ["egress"],
    }
    internal = {
        name: net.get("internal", False) for name, net in rendered.model["networks"].items()
    }
    assert internal == {"edge": False, "app": True, "engine": True, "egress": False}


@BOTH
def test_only_nginx_is_published_and_on_loopback(render: Render, files: str) -> None:
    rendered = render(files=files)
    assert {name for name in CORE if rendered.service(name).get("ports")} == {"nginx"}
    (port,) = rendered.service("nginx")["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("127.0.0.1", "8080", 8080)
    assert not any("network_mode" in rendered.service(name) for name in CORE)


def test_bind_address_and_port_come_from_the_settings(render: Render) -> None:
    (port,) = render(b"NGINX_BIND=0.0.0.0\nNGINX_PORT=9000\n").service("nginx")["ports"]
    assert (port["host_ip"], port["published"]) == ("0.0.0.0", "9000")


@BOTH
def test_every_service_is_hardened(render: Render, files: str) -> None:
    rendered = render(files=files)
    for name in CORE:
        service = rendered.service(name)
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["pids_limit"] > 0, name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}, name
        assert "privileged" not in service, name
        assert "cap_add" not in service, name


@BOTH
def test_services_come_back_but_the_download_does_not(render: Render, files: str) -> None:
    restart = {name: render(files=files).service(name)["restart"] for name in CORE}
    assert restart.pop("model") == "no"
    assert set(restart.values()) == {"unless-stopped"}


@BOTH
def test_nobody_waits_for_vllm_and_vllm_waits_for_the_download(render: Render, files: str) -> None:
    rendered = render(files=files)
    waits = {name: rendered.service(name).get("depends_on", {}) for name in CORE}
    assert list(waits["vllm"]) == ["model"]
    assert waits["vllm"]["model"]["condition"] == "service_completed_successfully"
    assert not any(waits[name] for name in ("nginx", "gateway", "model"))


@BOTH
def test_mounts_are_read_only_where_nothing_is_to_be_written(render: Render, files: str) -> None:
    rendered = render(files=files)
    mounts = {
        (name, mount["target"]): mount.get("read_only", False)
        for name in CORE
        for mount in rendered.service(name).get("volumes", [])
    }
    assert mounts == {
        ("gateway", "/run/secrets/gateway"): True,
        ("gateway", "/var/lib/gateway"): False,
        ("vllm", "/cache/huggingface"): True,
        ("vllm", "/cache/compile"): False,
        ("vllm", "/models"): True,
        ("model", "/cache/huggingface"): False,
        ("model", "/models"): True,
    }


@BOTH
def test_only_the_download_has_the_token(render: Render, files: str) -> None:
    rendered = render(files=files)
    holders = {name for name in CORE if rendered.service(name).get("secrets")}
    assert holders == {"model"}
    assert rendered.environment("model")["HF_TOKEN_PATH"] == "/run/secrets/hf_token"
    assert rendered.environment("vllm")["HF_HUB_OFFLINE"] == "1"
    assert rendered.model["secrets"]["hf_token"]["file"].endswith("/secrets/hf_token")


@BOTH
def test_a_token_in_the_environment_reaches_no_service(render: Render, files: str) -> None:
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "GATEWAY_API_KEYS")
    shell = dict.fromkeys(names, "hf_LEAKMARK")
    rendered = render(b"HF_TOKEN=hf_LEAKMARK\n", files, shell)
    assert rendered.code == 0
    assert "LEAKMARK" not in rendered.text


@BOTH
def test_engine_shares_memory_with_its_workers(render: Render, files: str) -> None:
    vllm = render(files=files).service("vllm")
    assert vllm["ipc"] == "host"
    assert any(mount.startswith("/tmp:exec") for mount in vllm["tmpfs"])


def test_limits_are_raised_for_gpus_only(render: Render) -> None:
    """Not every host may raise hard limits; without a GPU nothing needs them above 20,000."""
    gpu = render().service("vllm")["ulimits"]
    assert (gpu["memlock"], gpu["stack"], gpu["nofile"]) == (-1, 67108864, 65536)
    assert not render(files=CPU).service("vllm").get("ulimits")
    nginx = (ROOT / "nginx/templates/nginx.conf.template").read_text()
    for name in ("nginx", "gateway"):
        limit = render().service(name)["ulimits"]["nofile"]
        assert limit <= 20_000, name
        assert f"worker_rlimit_nofile {limit};" in nginx


@pytest.mark.parametrize("size", ["1", "2", "8"])
def test_device_count_is_the_tensor_parallel_size(render: Render, size: str) -> None:
    rendered = render(f"TENSOR_PARALLEL_SIZE={size}\n".encode())
    for name in ("vllm", "model"):
        (device,) = rendered.devices(name)
        assert device["count"] == int(size)
        assert device["driver"] == "nvidia"
        assert device["capabilities"] == ["gpu"]
        assert "device_ids" not in device
    assert rendered.environment("vllm")["TENSOR_PARALLEL_SIZE"] == size


@pytest.mark.parametrize("env", [b"", b"TENSOR_PARALLEL_SIZE=\n", b'TENSOR_PARALLEL_SIZE=""\n'])
def test_device_count_is_one_when_nothing_is_said(render: Render, env: bytes) -> None:
    """B54: neither `count` nor an empty one may mean "all" or "none"."""
    assert [device["count"] for device in render(env).devices("vllm")] == [1]


def test_a_word_as_device_count_is_refused(render: Render) -> None:
    rendered = render(b"TENSOR_PARALLEL_SIZE=two\n")
    assert rendered.code != 0
    assert '"two"' in rendered.stderr


def test_cpu_overlay_has_no_devices(render: Render) -> None:
    rendered = render(b"TENSOR_PARALLEL_SIZE=2\n", CPU)
    assert rendered.code == 0, rendered.stderr
    assert not rendered.devices("vllm")
    assert not rendered.devices("model")


def test_cpu_overlay_builds_the_other_image(render: Render) -> None:
    gpu, cpu = render(), render(files=CPU)
    for name in ("vllm", "model"):
        assert gpu.service(name)["image"] != cpu.service(name)["image"]
        assert gpu.environment(name)["ENGINE_DEVICE"] == "cuda"
        assert cpu.environment(name)["ENGINE_DEVICE"] == "cpu"
    built = [(one.service("model")["build"]["target"], vllm_image(one)) for one in (gpu, cpu)]
    assert built == [
        ("engine", "vllm/vllm-openai:v0.33.0"),
        ("engine-cpu", "vllm/vllm-openai-cpu:v0.33.0"),
    ]


@BOTH
def test_the_engine_image_is_built_once_for_both(render: Render, files: str) -> None:
    """Compose labels an image with the service it was built for: two builds give two ids."""
    rendered = render(files=files)
    assert rendered.service("vllm")["image"] == rendered.service("model")["image"]
    assert [name for name in CORE if "build" in rendered.service(name)] == [
        "nginx",
        "gateway",
        "model",
    ]


def vllm_image(rendered: Rendered) -> str:
    return str(rendered.service("model")["build"]["args"]["VLLM_IMAGE"])


def test_image_tags_are_the_project_version(render: Render) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for files in FILE_SETS:
        rendered = render(files=files)
        for name in CORE:
            repository, _, tag = rendered.service(name)["image"].partition(":")
            assert repository.startswith("vllm-compose/")
            assert tag == version, name
            # Nobody's registry is asked for an image of that name: it might have one.
            assert rendered.service(name)["pull_policy"] == "never", name


@BOTH
def test_every_long_running_service_has_a_health_check(render: Render, files: str) -> None:
    rendered = render(files=files)
    for name in ("nginx", "gateway", "vllm"):
        check = rendered.service(name)["healthcheck"]
        assert check["test"][0] == "CMD", name
        # Docker Engine 20.10 refuses a container that asks for it.
        assert "start_interval" not in check, name
    assert rendered.service("vllm")["healthcheck"]["start_period"] == "1h0m0s"


@BOTH
def test_grace_periods_outlast_the_drains_and_grow_outwards(render: Render, files: str) -> None:
    rendered = render(files=files)
    assert rendered.environment("vllm")["ENGINE_DRAIN_S"] == "60"
    vllm, gateway, nginx = (
        seconds(rendered.service(name)["stop_grace_period"])
        for name in ("vllm", "gateway", "nginx")
    )
    assert min(vllm, nginx) > gateway > 600  # the longest drain that the gateway takes


def seconds(text: str) -> int:
    """Go's form of a duration, as far as Compose writes it here: 1h0m0s, 11m20s, 90s."""
    total = 0
    number = ""
    for char in text:
        if char.isdigit():
            number += char
        else:
            total += int(number) * {"h": 3600, "m": 60, "s": 1}[char]
            number = ""
    return total


@pytest.mark.parametrize("profiles", ["", "gpu", "cpu", "*", "gpu, monitoring"])
def test_no_profile_changes_the_core(render: Render, profiles: str) -> None:
    """B58: the core has no profiles, so whatever is asked for, all four services are there."""
    rendered = render(overriding={"COMPOSE_PROFILES": profiles})
    assert rendered.code == 0, rendered.stderr
    assert set(rendered.model["services"]) == set(CORE)
