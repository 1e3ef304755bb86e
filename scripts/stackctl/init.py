"""Make .env and secrets/. Nothing that exists is overwritten; only COMPOSE_FILE is kept in step."""

from stackctl import envfile, keys, pins
from stackctl.config import Config
from stackctl.errors import problem
from stackctl.layout import Layout
from stackctl.mode import Mode
from stackctl.pins import CPU_OVERLAY

CORE_FILE = "docker-compose.yml"


def is_needed(layout: Layout) -> bool:
    """Nothing made yet. A single file that went missing later is an error, not a reason to
    invent a new key quietly."""
    made = layout.hf_token.exists() or layout.api_keys.exists()
    return not layout.env_file.exists() or not made


def make(layout: Layout) -> list[str]:
    """Create what is missing; returns what was made, in words."""
    made = []
    if not layout.env_file.exists():
        if not layout.env_example.is_file():
            raise problem("no .env.example", "the checkout's own file", "git checkout .env.example")
        text = layout.env_example.read_text(encoding="utf-8")
        envfile.write_atomically(layout.env_file, text, 0o644)
        made.append(".env (from .env.example)")
    made += _make_secrets(layout)
    # Compose mounts it read-only; made by the engine it would belong to root.
    layout.models.mkdir(parents=True, exist_ok=True)
    return made


def _make_secrets(layout: Layout) -> list[str]:
    made = []
    layout.secrets.mkdir(exist_ok=True)
    layout.secrets.chmod(0o700)
    gateway = layout.api_keys.parent
    gateway.mkdir(exist_ok=True)
    gateway.chmod(0o755)  # mounted as a folder: the gateway's user must be able to enter it
    if not layout.hf_token.exists():
        envfile.write_atomically(layout.hf_token, "", keys.FILE_MODE)
        made.append("secrets/hf_token (empty: enough for models without a licence to accept)")
    if not layout.api_keys.exists():
        record: keys.Record = {"name": keys.DEFAULT_NAME, "key": keys.generate()}
        keys.write(layout.api_keys, [record])
        made.append("secrets/gateway/api_keys.toml (one key, named default)")
    return made


def compose_file(current: str, mode: Mode, separator: str = ":", *, pinned: bool = False) -> str:
    """COMPOSE_FILE for `mode`: the CPU overlay added or removed, other overlays kept in order."""
    files = [name for name in current.split(separator) if name and name != CPU_OVERLAY]
    if not files:
        files = [CORE_FILE]
    if mode == "cpu":
        files.insert(files.index(CORE_FILE) + 1 if CORE_FILE in files else 1, CPU_OVERLAY)
    return with_pins(separator.join(files), separator, pinned=pinned)


def with_pins(current: str, separator: str = ":", *, pinned: bool) -> str:
    """The digests last, so that no other overlay puts a tag over them; or not at all."""
    files = [name for name in current.split(separator) if name and name != pins.OVERLAY]
    return separator.join([*(files or [CORE_FILE]), *([pins.OVERLAY] if pinned else [])])


def keep_compose_file(layout: Layout, config: Config, mode: Mode) -> None:
    """Write COMPOSE_FILE, so that plain `docker compose` means the stack of this mode."""
    found = files(layout, config, mode)
    pins.keep(layout, config, found)
    separator = config.get("COMPOSE_PATH_SEPARATOR", ":")
    _write_compose_file(layout, config, separator.join(found))


def files(layout: Layout, config: Config, mode: Mode) -> list[str]:
    """The files that make the stack in this mode. The environment's word is not ours to change."""
    separator = config.get("COMPOSE_PATH_SEPARATOR", ":")
    if "COMPOSE_FILE" in config.environment:
        return config.environment["COMPOSE_FILE"].split(separator)
    current = config.file.values.get("COMPOSE_FILE", "") if config.file else ""
    return compose_file(current, mode, separator, pinned=_is_pinned(layout)).split(separator)


def name_pins(layout: Layout, config: Config) -> bool:
    """COMPOSE_FILE with the digests' overlay, or without where there is none. False: it is not
    ours to write."""
    separator = config.get("COMPOSE_PATH_SEPARATOR", ":")
    current = config.file.values.get("COMPOSE_FILE", "") if config.file else ""
    return _write_compose_file(
        layout, config, with_pins(current, separator, pinned=_is_pinned(layout))
    )


def _is_pinned(layout: Layout) -> bool:
    return (layout.root / pins.OVERLAY).exists()


def _write_compose_file(layout: Layout, config: Config, wanted: str) -> bool:
    if "COMPOSE_FILE" in config.environment or config.file is None:
        return False
    if wanted != config.file.values.get("COMPOSE_FILE", ""):
        # newline="" keeps a file with CRLF ends as it is.
        with layout.env_file.open(encoding="utf-8", newline="") as stream:
            text = stream.read()
        mode_bits = layout.env_file.stat().st_mode & 0o777
        envfile.write_atomically(
            layout.env_file, envfile.with_value(text, "COMPOSE_FILE", wanted), mode_bits
        )
    return True
