"""Bad input through the real command: one clear line, its exit status, nothing half-done."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from common.checkout import Checkout
from common.net import free_port
from stackctl import envfile, process
from stackctl.errors import of_host

DATA = Path(__file__).parent / "data"
LOCAL = {"STACK_MODE": "local"}
Fake = Callable[..., None]


def up(checkout: Checkout, code: int, *words: str, env: dict[str, str] | None = None) -> str:
    """`up` fails with `code` and exactly one line on stderr, holding `words`; the line."""
    done = checkout.stack("up", env=LOCAL if env is None else env)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert done.returncode == code, done.stderr
    for word in (*words, "fix:"):
        assert word in lines[0]
    assert not (checkout.root / ".venv").exists()
    assert not (checkout.root / ".run" / "engine").exists()
    return lines[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TENSOR_PARALLEL_SIZE", "two"),
        ("TENSOR_PARALLEL_SIZE", "0"),
        ("TENSOR_PARALLEL_SIZE", "-1"),
        ("TENSOR_PARALLEL_SIZE", "all"),
        ("GPU_MEMORY_UTILIZATION", "1.5"),
        ("COMPILATION_CONFIG", "'{bad'"),
        ("VLLM_EXTRA_ARGS", "'--tensor-parallel-size 2'"),
        ("STACK_MODE", "turbo"),
        ("NGINX_PORT", "http"),
        ("NGINX_PORT", "65536"),
        ("NGINX_BIND", "everywhere"),
    ],
)
def test_value(checkout: Checkout, name: str, value: str) -> None:
    checkout.set_env(**{name: value})
    usage = name == "STACK_MODE"
    line = up(checkout, 2 if usage else 1, name, value.strip("'").split()[0], env={})
    assert line.startswith("stack: ")


def test_values_from_the_environment_are_judged_too(checkout: Checkout) -> None:
    up(checkout, 1, "TENSOR_PARALLEL_SIZE", env={**LOCAL, "TENSOR_PARALLEL_SIZE": "two"})


def test_unknown_name(checkout: Checkout) -> None:
    checkout.set_env(MODLE="x")
    up(checkout, 1, "MODLE", "did you mean MODEL?")


def test_env_that_does_not_parse(checkout: Checkout) -> None:
    checkout.set_env(MODEL="'open")
    up(checkout, 2, ".env", "not closed")


def test_port_in_use(checkout: Checkout) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        checkout.set_env(NGINX_PORT=str(port))
        up(checkout, 1, f"127.0.0.1:{port} in use by", f"pid {os.getpid()}", "NGINX_PORT")


def test_secret_missing(checkout: Checkout) -> None:
    (checkout.root / "secrets" / "hf_token").unlink()
    up(checkout, 1, "no secrets/hf_token", "make init")


def test_keys_missing(checkout: Checkout) -> None:
    (checkout.root / "secrets" / "gateway" / "api_keys.toml").unlink()
    up(checkout, 1, "secrets/gateway/api_keys.toml", "make init")


@pytest.mark.parametrize("name", ["hf_token", "gateway/api_keys.toml"])
def test_secret_is_a_folder(checkout: Checkout, name: str) -> None:
    path = checkout.root / "secrets" / name
    path.unlink()
    path.mkdir()
    up(checkout, 1, "a folder at secrets/", "rmdir")


@pytest.mark.parametrize("name", ["hf_token", "gateway/api_keys.toml"])
def test_secret_with_cr(checkout: Checkout, name: str) -> None:
    path = checkout.root / "secrets" / name
    text = path.read_bytes() or b"hf_abc\n"
    path.chmod(0o644)
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    line = up(checkout, 1, "CR line ends", "sed -i")
    assert "hf_abc" not in line


@pytest.mark.parametrize("text", ["changeme\n", "hf_xxxxxxxx\n", "hf_abc\nhf_def\n", "hf_\0abc\n"])
def test_a_token_that_is_none(checkout: Checkout, text: str) -> None:
    path = checkout.root / "secrets" / "hf_token"
    path.chmod(0o644)
    path.write_text(text)
    line = up(checkout, 1, "HF token", "secrets/hf_token")
    assert "hf_abc" not in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no key in"),
        ("# none\n", "no key in"),
        ("[[key]\n", "broken"),
        ("key = 1\n", "without [[key]] tables"),
        ('[[key]]\nname = "a"\nname = "b"\n', "broken"),
    ],
)
def test_keys_empty_or_broken(checkout: Checkout, text: str, words: str) -> None:
    path = checkout.root / "secrets" / "gateway" / "api_keys.toml"
    path.chmod(0o644)
    path.write_text(text)
    up(checkout, 1, "api_keys.toml", words)


def test_secret_that_a_container_could_not_read(checkout: Checkout) -> None:
    (checkout.root / "secrets" / "hf_token").chmod(0o600)
    up(checkout, 1, "mode 0600 of secrets/hf_token", "chmod 444")


def test_gpu_without_a_docker_engine(checkout: Checkout, fake: Fake) -> None:
    fake("nvidia-smi", [([], 0, (DATA / "nvidia-smi-h200.csv").read_text(), "")])
    up(checkout, 1, "a GPU but no usable Docker engine", "get.docker.com", env={})


def test_gpu_with_a_docker_client_alone(checkout: Checkout, fake: Fake) -> None:
    fake("nvidia-smi", [([], 0, (DATA / "nvidia-smi-h200.csv").read_text(), "")])
    fake("docker", [(["version"], 1, "\n", (DATA / "docker-version-no-daemon.txt").read_text())])
    up(checkout, 1, "Is the docker daemon running", "nvidia-ctk", env={})


def test_docker_socket_that_refuses(checkout: Checkout, fake: Fake) -> None:
    fake("docker", [(["version"], 1, "\n", (DATA / "docker-version-refused.txt").read_text())])
    up(checkout, 1, "refuses this user", "usermod -aG docker", env={})


def test_gpu_with_a_broken_driver(checkout: Checkout, fake: Fake) -> None:
    fake("nvidia-smi", [([], 9, (DATA / "nvidia-smi-no-driver.txt").read_text(), "")])
    up(checkout, 1, "couldn't communicate with the NVIDIA driver", env={})


def test_more_gpus_asked_for_than_there_are(
    checkout: Checkout, fake: Fake, container_toolkit: None
) -> None:
    fake("nvidia-smi", [([], 0, (DATA / "nvidia-smi-h200-x2.csv").read_text(), "")])
    fake(
        "docker",
        [
            (["version"], 0, "28.2.2\n", ""),
            (["compose", "version"], 0, "2.40.3\n", ""),
            (["info"], 0, f"{checkout.root}\n", ""),
            (["compose", "ps"], 0, "", ""),
        ],
    )
    checkout.set_env(TENSOR_PARALLEL_SIZE="8")
    (checkout.root / ".run" / "mode").write_text("gpu\n")  # not a first run
    up(checkout, 1, "TENSOR_PARALLEL_SIZE=8 and 2 GPUs", "TENSOR_PARALLEL_SIZE=2", env={})


def test_no_network_on_the_first_run(checkout: Checkout) -> None:
    nowhere = "http://127.0.0.1:9/simple"
    offline = {
        **LOCAL, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": nowhere, "PIP_NO_CACHE_DIR": "1",
        "TORCH_CPU_INDEX": nowhere, "NGINX_PORT": str(free_port()),
    }  # fmt: skip
    up(checkout, 1, "no network", "HTTPS_PROXY", env=offline)
    assert not (checkout.root / ".run" / "supervisord.conf").exists()


def test_two_at_once(checkout: Checkout) -> None:
    with (checkout.root / ".run" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        up(checkout, 1, "another scripts/stack")


def test_no_python(checkout: Checkout) -> None:
    (checkout.bin / "python3").unlink()
    done = checkout.stack("status")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "wanted Python 3.11 or newer; fix: apt install" in done.stderr


def test_wrong_use(checkout: Checkout) -> None:
    assert checkout.stack("fly").returncode == 2
    assert checkout.stack("key", "show", "nobody").returncode == 2


def one_line(checkout: Checkout, verb: str, *words: str) -> None:
    """`verb` is refused by the host: status 1 and one line."""
    done = checkout.stack(verb, env=LOCAL)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    for word in (*words, "fix:"):
        assert word in done.stderr


def test_a_file_where_a_folder_belongs(checkout: Checkout) -> None:
    shutil.rmtree(checkout.root / ".run")
    (checkout.root / ".run").write_text("")
    one_line(checkout, "up", "/.run", "remove the file")


def test_a_folder_of_another_user() -> None:
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/srv/stack/.env")
    assert of_host(error) == "/srv/stack/.env: Permission denied; fix: correct its owner and mode"


def test_a_full_disk_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        envfile.write_atomically(tmp_path / ".env", "A=1\n", 0o644)
    line = of_host(caught.value)
    assert line == f"{tmp_path}/.env: No space left on device; fix: free some disk"
    assert not list(tmp_path.iterdir())


def test_a_log_on_a_full_disk(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space") as caught:
        process.follow(["echo", "hello"], lambda _: None, log=log)
    assert str(log) in of_host(caught.value)


def test_nohup_is_respected(checkout: Checkout) -> None:
    script = (
        "import signal\nfrom stackctl import __main__ as cli\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\ncli.main()\n"
        "assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "key", "list"],
        env=checkout.env({"PYTHONPATH": str(checkout.root / "scripts")}),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
