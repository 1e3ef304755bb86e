"""Values of .env and files of secrets/ as the containers see them, right and wrong (B48 to B56)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from common import outside
from common.docker_project import Project

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

# Exit codes of launcher.model.fetch.
BAD_TOKEN, NO_NETWORK = 12, 14
OPTIONAL = (
    *("MODEL", "MODEL_REVISION", "SERVED_MODEL_NAME", "GPU_MEMORY_UTILIZATION", "MAX_MODEL_LEN"),
    *("MAX_NUM_SEQS", "MAX_NUM_BATCHED_TOKENS", "KV_CACHE_DTYPE", "QUANTIZATION"),
    *("ENABLE_PREFIX_CACHING", "TOOL_CALL_PARSER", "REASONING_PARSER", "API_SERVER_COUNT"),
    *("REQUIRE_CUDA_GRAPHS", "COMPILATION_CONFIG", "VLLM_EXTRA_ARGS"),
)


@pytest.fixture
def env(bare: Project) -> Iterator[Path]:
    """The project's .env, put back afterwards."""
    path = bare.root / ".env"
    before = path.read_bytes()
    yield path
    path.write_bytes(before)


@pytest.fixture
def token(bare: Project) -> Iterator[Path]:
    path = bare.root / "secrets" / "hf_token"
    yield from _kept(path)


@pytest.fixture
def keys(bare: Project) -> Iterator[Path]:
    path = bare.root / "secrets" / "gateway" / "api_keys.toml"
    yield from _kept(path)


def _kept(path: Path) -> Iterator[Path]:
    before = path.read_bytes()
    yield path
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(before)
    path.chmod(0o444)


def replace(path: Path, data: bytes, mode: int = 0o444) -> None:
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def argv(project: Project) -> list[str]:
    """vLLM's arguments as the launcher in the container builds them."""
    done = project.compose("run", "--rm", "--no-deps", "-T", "vllm", "--print-argv")
    return list(json.loads(done.stdout))


def value_of(arguments: list[str], flag: str) -> str:
    """Value of `--flag value` or `--flag=value`."""
    for i, one in enumerate(arguments):
        if one == flag:
            return arguments[i + 1]
        if one.startswith(f"{flag}="):
            return one.partition("=")[2]
    raise AssertionError(f"{flag} is not in {arguments}")


def run_python(project: Project, service: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run `program` in a container of the service, in place of the service's own."""
    words = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "python3", service, "-c", program)
    return project.compose(*words, check=False)


def once(project: Project, service: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the service's own program in a container until it ends by itself."""
    words = ("run", "--rm", "--no-deps", "-T", *options, service)
    return project.compose(*words, check=False, timeout=120)


def download(project: Project) -> subprocess.CompletedProcess[str]:
    """The download of a model that needs the token, from a hub that nobody runs."""
    wanted = ("MODEL=someone/some-model", "HF_ENDPOINT=http://127.0.0.1:9")
    return once(project, "model", *(word for one in wanted for word in ("--env", one)))


def test_json_and_quotes_reach_the_engine(bare: Project, env: Path) -> None:
    """B51, B55: quoted once in .env, whole in the argument list."""
    config = '{"mode": 3, "inductor_compile_config": {"a": "$HOME x"}}'
    extra = '--chat-template "/models/a b$c.jinja"'
    added = f"\nCOMPILATION_CONFIG='{config}'\nVLLM_EXTRA_ARGS='{extra}'\n"
    env.write_text(env.read_text() + added)
    found = argv(bare)
    assert json.loads(value_of(found, "--compilation-config")) == json.loads(config)
    assert value_of(found, "--chat-template") == "/models/a b$c.jinja"


def test_empty_means_unset(bare: Project, env: Path) -> None:
    """B56: empty, quoted empty and blank give the very arguments of an absent name."""
    plain = argv(bare)
    before = env.read_text()
    for written in ("", '""', "' '"):
        env.write_text(before + "".join(f"\n{name}={written}" for name in OPTIONAL) + "\n")
        assert argv(bare) == plain, repr(written)


def test_bom_and_crlf_reach_the_engine_clean(bare: Project, env: Path) -> None:
    """B53: no BOM in the first name, no CR at the end of a value."""
    rest = env.read_bytes().replace(b"\n", b"\r\n")
    env.write_bytes(b"\xef\xbb\xbfMAX_MODEL_LEN=1024\r\nMAX_NUM_SEQS=4\r\n" + rest)
    found = argv(bare)
    assert value_of(found, "--max-model-len") == "1024"
    assert value_of(found, "--max-num-seqs") == "4"


def test_a_bad_value_is_one_line_and_an_exit_code(bare: Project, env: Path) -> None:
    env.write_text(env.read_text() + "\nGPU_MEMORY_UTILIZATION=1.5\n")
    done = bare.compose("run", "--rm", "--no-deps", "-T", "vllm", "--print-argv", check=False)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "GPU_MEMORY_UTILIZATION" in line]
    assert "1.5" in line


def test_only_the_download_gets_out(bare: Project) -> None:
    """The same address is reached from `model` and from no container that serves."""
    reason = outside.missing()
    if reason:
        pytest.skip(reason)
    with outside.Outside() as host:
        probe = (
            "import socket, sys\n"
            f"try: socket.create_connection(('{host.address}', {host.port}), 4)\n"
            "except OSError: sys.exit(7)\n"
        )
        reached = {
            service: run_python(bare, service, probe).returncode
            for service in ("model", "vllm", "gateway")
        }
    assert reached == {"model": 0, "vllm": 7, "gateway": 7}


def test_engine_container_sees_no_token(bare: Project) -> None:
    probe = (
        "import os\n"
        "assert not os.path.exists('/run/secrets'), os.listdir('/run/secrets')\n"
        "assert not [name for name in os.environ if 'TOKEN' in name], os.environ\n"
    )
    done = run_python(bare, "vllm", probe)
    assert done.returncode == 0, done.stderr


def test_good_token_files_are_taken(bare: Project, token: Path) -> None:
    """B48: a newline, CRLF, a BOM or spaces around the token are no part of it; empty is none."""
    for data in (b"", b"\n", b"hf_LEAKMARK\r\n", b"\xef\xbb\xbfhf_LEAKMARK\n", b" hf_LEAKMARK \n"):
        replace(token, data)
        done = download(bare)
        assert done.returncode == NO_NETWORK, (data, done.stdout, done.stderr)
        assert "LEAKMARK" not in done.stdout + done.stderr


@pytest.mark.parametrize("data", [b"hf_LEAKMARK\nhf_OTHER\n", b"changeme\n", b"hf_LEAK\0MARK"])
def test_bad_token_files_are_named_without_their_value(
    bare: Project, token: Path, data: bytes
) -> None:
    replace(token, data)
    done = download(bare)
    assert done.returncode == BAD_TOKEN, done.stdout + done.stderr
    assert "secrets/hf_token" in done.stderr
    assert "LEAK" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_token_of_mode_0600_says_what_to_do(bare: Project, token: Path) -> None:
    """B50: the documented scheme is 0444 inside a folder of 0700."""
    replace(token, b"hf_LEAKMARK\n", 0o600)
    done = download(bare)
    assert done.returncode == BAD_TOKEN, done.stdout + done.stderr
    assert "444" in done.stderr
    assert "Traceback" not in done.stderr


def test_token_that_is_a_directory(bare: Project, token: Path) -> None:
    """B49: what an earlier engine may have left in place of a missing file."""
    token.unlink()
    token.mkdir()
    done = download(bare)
    assert done.returncode == BAD_TOKEN, done.stdout + done.stderr
    assert "folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_token_file_is_an_error_and_stays_missing(bare: Project, token: Path) -> None:
    """B49: Compose must not make a directory of it."""
    token.unlink()
    done = bare.compose("up", "-d", "model", check=False)
    assert done.returncode != 0
    assert "hf_token" in done.stderr
    assert not token.exists()
    bare.compose("down")


def test_missing_keys_folder_is_an_error_and_stays_missing(bare: Project) -> None:
    folder = bare.root / "secrets" / "gateway"
    hidden = folder.rename(folder.with_name("hidden"))
    try:
        done = bare.compose("up", "-d", "gateway", check=False)
        assert done.returncode != 0
        assert not folder.exists()
    finally:
        bare.compose("down")
        hidden.rename(folder)


def test_keys_of_mode_0600_are_an_error_with_its_fix(bare: Project, keys: Path) -> None:
    replace(keys, keys.read_bytes(), 0o600)
    done = once(bare, "gateway")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "api_keys.toml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["missing", "directory", "empty", "broken"])
def test_bad_key_files_end_the_gateway_with_one_line(bare: Project, keys: Path, kind: str) -> None:
    keys.unlink()
    if kind == "directory":
        keys.mkdir()
    elif kind != "missing":
        keys.write_bytes(b"" if kind == "empty" else b'[[key]\nname="sk-LEAKMARK"\n')
        keys.chmod(0o444)
    done = once(bare, "gateway")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "api_keys.toml" in done.stderr
    assert "LEAKMARK" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_plain_compose_builds_what_is_missing(bare: Project) -> None:
    """After `init`, `docker compose up` needs no `build` first, and asks no registry for ours."""
    overlay = bare.root / "other-names.yml"
    images = {name: f"{bare.name}/{name}:test" for name in ("nginx", "gateway", "engine")}
    named = {"nginx": "nginx", "gateway": "gateway", "vllm": "engine", "model": "engine"}
    lines = [f"  {service}: {{image: '{images[image]}'}}" for service, image in named.items()]
    overlay.write_text("services:\n" + "\n".join(lines) + "\n")
    files = ("-f", "docker-compose.yml", "-f", "compose/cpu.yml", "-f", "other-names.yml")
    try:
        created = bare.compose(*files, "create", timeout=300)
        assert "Pulling" not in created.stdout + created.stderr
        used = {name: bare.inspect(name)["Config"]["Image"] for name in named}
        assert used == {service: images[image] for service, image in named.items()}
    finally:
        bare.compose(*files, "down")
        bare.run("docker", "rmi", *images.values(), check=False)
