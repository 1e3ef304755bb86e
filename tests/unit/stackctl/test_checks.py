"""The judges: found, wanted and fix for every refusal."""

from pathlib import Path

import pytest
from stackctl.doctor import checks, facts, filechecks
from stackctl.doctor.facts import Host, Listener
from stackctl.envfile import EnvFile
from stackctl.mode import Engine, Gpus, Mode

GIB = checks.GIB


def host(**changes: object) -> Host:
    values: dict[str, object] = {
        "python": (3, 11), "has_venv": True, "system": "Linux", "machine": "x86_64",
        "memory": 16 * GIB, "engine": Engine("ok", version="28.2.2"), "compose": "2.40.3",
        "gpus": Gpus(("NVIDIA H200",)),
    }  # fmt: skip
    return Host(**(values | changes))  # type: ignore[arg-type]


def refused(check: checks.Check, *words: str) -> None:
    assert check.status == "fail"
    assert all(word in check.line for word in words), check.line
    assert check.wanted
    assert check.fix
    assert "\n" not in check.line


def test_python() -> None:
    assert checks.python(host(), "local").status == "ok"
    assert checks.python(host(python=(3, 14)), "gpu").status == "ok"
    refused(checks.python(host(python=(3, 14)), "local"), "3.14", "3.11 to 3.13")
    refused(checks.python(host(has_venv=False), "local"), "apt install python3.11-venv")


def test_platform_and_memory_matter_in_local_mode() -> None:
    refused(checks.platform(host(machine="aarch64"), "local"), "aarch64", "x86_64")
    assert checks.platform(host(machine="aarch64"), "cpu").status == "ok"
    refused(checks.memory(host(memory=4 * GIB), "local"), "4.0 GiB", "8 GB")
    assert checks.memory(host(memory=4 * GIB), "cpu").status == "ok"


@pytest.mark.parametrize("version", ["2.24.4", "2.40.3", "5.5.0", "2.40.3-desktop.1"])
def test_compose_new_enough(version: str) -> None:
    assert checks.compose(version).status == "ok"


@pytest.mark.parametrize("version", ["", "1.29.2", "2.24.3"])
def test_compose_too_old(version: str) -> None:
    refused(checks.compose(version), "2.24.4")


def test_engine_too_old() -> None:
    old = host(engine=Engine("ok", version="19.03.8"))
    refused(checks.docker(old, "cpu")[0], "19.03.8", "20.10")
    assert [c.status for c in checks.docker(host(), "cpu")] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("count", "wanted", "mode", "status"),
    [
        (1, "1", "gpu", "ok"), (8, "8", "gpu", "ok"), (1, "2", "gpu", "fail"),
        (2, "8", "gpu", "fail"), (0, "2", "local", "ok"), (1, "two", "gpu", "ok"),
    ],
)  # fmt: skip
def test_gpu_count(count: int, wanted: str, mode: Mode, status: str) -> None:
    check = checks.gpu_count(Gpus(("NVIDIA H200",) * count), wanted, mode)
    assert check.status == status
    if status == "fail":
        assert f"TENSOR_PARALLEL_SIZE={count}" in check.fix


def test_a_gpu_without_its_driver_is_said() -> None:
    check = checks.gpu_count(Gpus(driverless=2), "1", "cpu")
    assert check.status == "warn"
    assert "2 NVIDIA GPU without its driver" in check.line
    check = checks.gpu_count(Gpus(unseen=1), "1", "cpu")
    assert check.status == "warn"
    assert "nvidia-smi lists none" in check.line


def test_port() -> None:
    busy = "Address already in use"
    assert checks.port("127.0.0.1", 8080, "", None, ours=False).status == "ok"
    assert checks.port("127.0.0.1", 8080, busy, None, ours=True).status == "ok"
    apache = Listener(42, "apache2", "/")
    refused(checks.port("127.0.0.1", 8080, busy, apache, ours=False), "apache2 (pid 42)", "kill 42")
    clone = Listener(43, "nginx", "/srv/two/.run/nginx")
    refused(checks.port("0.0.0.0", 8080, busy, clone, ours=False), "make down in /srv/two")
    refused(checks.port("127.0.0.1", 8080, busy, None, ours=False), "another program")
    low = ("127.0.0.1", 80, "Permission denied", None)
    refused(checks.port(*low, ours=False, mode="local"), "NGINX_PORT")
    assert checks.port(*low, ours=False, mode="gpu").status == "ok"  # dockerd opens it
    refused(checks.port("192.0.2.1", 80, "Cannot assign requested address", None, ours=False))


def test_disk() -> None:
    refused(checks.disk("/", GIB, 8 * GIB), "1.0 GiB free at /", "8 GiB")
    assert checks.disk("/", 9 * GIB, 8 * GIB).status == "ok"


def test_unknown_names_get_the_nearest_known() -> None:
    file = EnvFile({"MODLE": "x", "GATEWAY_QUEUE": "1", "zzz": "1", "MODEL": "auto"}, False, False)
    found = filechecks.env_names(file, {"GATEWAY_HOLDS": "1", "PATH": "/bin"})
    assert [c.fix for c in found] == [
        "did you mean MODEL?",
        "did you mean GATEWAY_QUEUE_SIZE?",
        "remove it",
        "did you mean GATEWAY_HOLD_S?",
    ]
    for check in found:
        refused(check, "unknown name")


def test_allowed_names_beyond_the_table() -> None:
    names = ("COMPOSE_PROFILES", "https_proxy", "NO_PROXY", "HF_ENDPOINT", "TORCH_CPU_INDEX")
    file = EnvFile(dict.fromkeys(names, "x"), False, False)
    assert [c.status for c in filechecks.env_names(file, {})] == ["ok"]


def test_leftovers_and_wiring_warn() -> None:
    found = filechecks.env_names(EnvFile({"GATEWAY_PORT": "1"}, True, True), {})
    assert [c.status for c in found] == ["warn", "warn"]
    assert "a BOM and CR line ends" in found[0].found


@pytest.mark.parametrize(
    ("files", "status"),
    [("docker-compose.yml", "warn"), ("docker-compose.yml:compose/workers.yml", "ok")],
)
def test_the_number_of_workers_is_for_the_overlay_that_reads_it(files: str, status: str) -> None:
    file = EnvFile({"COMPOSE_FILE": files, "GATEWAY_WORKERS": "4"}, False, False)
    assert [c.status for c in filechecks.env_names(file, {})] == [status]


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"", "ok", "empty"),
        (b"\n", "ok", "empty"),
        (b"hf_abc\n", "ok", "set"),
        (b"\xef\xbb\xbf hf_abc \n", "ok", "set"),
        (b"hf_abc\r\n", "fail", "CR line ends"),
        (None, "fail", "make init"),
    ],
)
def test_token(data: bytes | None, status: str, words: str) -> None:
    check = filechecks.token(data, is_folder=False)
    assert check.status == status
    assert words in check.line
    assert "abc" not in check.line


def test_token_folder_and_modes() -> None:
    refused(filechecks.token(None, is_folder=True), "rmdir")
    bad = filechecks.readable("hf token", "secrets/hf_token", 0o100600)
    assert bad is not None
    refused(bad, "0600", "chmod 444")
    assert filechecks.readable("hf token", "secrets/hf_token", 0o100444) is None


def test_an_unknown_name_is_said_to_be_where_it_is() -> None:
    file = EnvFile({"HF_TOKEN": "hf_abc"}, False, False)
    in_file, in_shell = filechecks.env_names(file, {"GATEWAY_HOLDS": "1"})
    assert "HF_TOKEN in .env" in in_file.line
    assert "secrets/hf_token" in in_file.fix
    assert "hf_abc" not in in_file.line
    assert "GATEWAY_HOLDS in the environment" in in_shell.line


def test_a_model_folder_is_looked_at_before_anything_is_installed(tmp_path: Path) -> None:
    refused(filechecks.local_model("/models/x", tmp_path, ("a", "b")), "there are a, b")
    refused(filechecks.local_model("/srv/x", None, ()), "no container sees")
    (tmp_path / "config.json").write_text("{}")
    assert filechecks.local_model("/models/x", tmp_path, ()).status == "ok"


def test_the_library_that_the_cpu_build_links() -> None:
    (missing,) = checks.library(found=False, mode="local")
    refused(missing, "libnuma.so.1", "apt install libnuma1")
    assert checks.library(found=True, mode="local") == []
    assert checks.library(found=False, mode="cpu") == []
    assert facts.has_library("libc.so.6")
    assert not facts.has_library("libnothing-of-the-kind.so.1")
