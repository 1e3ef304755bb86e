"""Every check for a mode: for `doctor`, and as the pre-flight of `up`. Changes nothing."""

from pathlib import Path

from stackctl import init, keys, mode, programs
from stackctl import pins as pin_file
from stackctl.config import Config
from stackctl.containers import Containers
from stackctl.doctor import (
    checks,
    envcheck,
    facts,
    filechecks,
    gpumemory,
    gpus,
    system,
    toolkit,
    xids,
)
from stackctl.doctor.checks import Check
from stackctl.doctor.seen import GpuHost, Seen
from stackctl.errors import StackError
from stackctl.layout import Layout


def examine(
    layout: Layout, config: Config, host: facts.Host, chosen: mode.Mode, seen: Seen
) -> list[Check]:
    """Every check for this mode, in the order a newcomer meets them."""
    return [
        checks.platform(host, chosen),
        checks.python(host, chosen),
        checks.memory(host, chosen),
        *system.judge(seen.system, chosen, ranks(config), config.get("COMPOSE_FILE")),
        *checks.library(facts.has_library("libnuma.so.1"), chosen),
        *checks.docker(host, chosen),
        checks.gpu_count(host.gpus, config.get("TENSOR_PARALLEL_SIZE", "1"), chosen),
        *(gpu_host(layout, config, host, seen.gpu) if seen.gpu else ()),
        disk(layout, chosen),
        *filechecks.env_names(config.file, dict(config.environment)),
        *envcheck.launcher_values(layout, config, chosen),
        *envcheck.gateway_values(layout, config, chosen),
        *local_model(layout, config, chosen),
        *pinned(layout, config, chosen),
        *port(layout, config, chosen),
        *token(layout),
        *api_keys(layout),
    ]


def gpu_host(layout: Layout, config: Config, host: facts.Host, seen: GpuHost) -> list[Check]:
    """The driver, the GPUs that Docker would hand over (the first ones), and the toolkit."""
    wanted = ranks(config)
    found = seen.gpus
    untold = [checks.untold(found.error)] if found.error and host.gpus.names else []
    return [
        *untold,
        *gpus.driver(layout, found.cards, config.get("VLLM_IMAGE")),
        *gpus.judge(found.cards, wanted),
        *gpumemory.judge(found.cards[:wanted], found.apps, _share(config), seen.engine),
        *xids.judge(seen.xids),
        *(toolkit.without_docker(seen.toolkit) if host.engine.state != "ok" else ()),
        *toolkit.judge(seen.docker, seen.toolkit, found.cards[:wanted]),
    ]


def ranks(config: Config) -> int:
    """TENSOR_PARALLEL_SIZE; 1 where the launcher refuses its form."""
    text = config.get("TENSOR_PARALLEL_SIZE", "1")
    return int(text) if text.isascii() and text.isdigit() and int(text[:9]) > 0 else 1


def _share(config: Config) -> float:
    """Of a GPU's memory; 0 where the launcher refuses the value."""
    try:
        share = float(config.get("GPU_MEMORY_UTILIZATION", "0.9"))
    except ValueError:
        return 0.0
    return share if 0 < share <= 1 else 0.0


def pinned(layout: Layout, config: Config, chosen: mode.Mode) -> list[Check]:
    """Whether each image of this mode's stack has its digest, once digests were asked for."""
    try:
        pins = pin_file.read(layout)
        if chosen == "local" or pins is None:
            return []
        files = init.files(layout, config, chosen)
        lacking = pin_file.missing(layout, config, pins, files)
    except StackError as error:
        return [_from_error("pins", error)]
    return [filechecks.pins(lacking, pins.made, named=pin_file.OVERLAY in files)]


def local_model(layout: Layout, config: Config, chosen: mode.Mode) -> list[Check]:
    """Nothing for a hub's name: only the hub knows it."""
    wanted = config.get("MODEL", "auto")
    if not wanted.startswith(("/", "./", "../")):
        return []
    seen: Path | None = Path(programs.model(layout, config))
    if chosen != "local" and not wanted.startswith("/models/"):
        seen = None
    elif chosen != "local":
        seen = layout.models / Path(wanted).relative_to("/models")
    there = layout.models.iterdir() if layout.models.is_dir() else ()
    names = sorted(path.name for path in there if path.is_dir())
    return [filechecks.local_model(wanted, seen, tuple(names))]


def disk(layout: Layout, chosen: mode.Mode) -> Check:
    if chosen == "local":
        first = not layout.engine_python.exists()
        needed = checks.LOCAL_FIRST_RUN if first else checks.LOCAL_LATER
        return checks.disk(str(layout.root), facts.read_free(layout.run), needed)
    place = facts.docker_root() or Path("/")
    first = mode.proven(layout.mode_file) != chosen
    needed = checks.DOCKER_FIRST_RUN[chosen] if first else checks.DOCKER_LATER
    return checks.disk(str(place), facts.read_free(place), needed)


def port(layout: Layout, config: Config, chosen: mode.Mode) -> list[Check]:
    try:
        address, number = config.bind, config.port
    except StackError as error:
        return [_from_error("port", error)]
    error_text = facts.bind_error(address, number)
    holder = facts.find_listener(number) if error_text else None
    ours = bool(error_text) and is_ours(layout, chosen, number, holder)
    return [checks.port(address, number, error_text, holder, ours, chosen)]


def is_ours(layout: Layout, chosen: mode.Mode, number: int, holder: facts.Listener | None) -> bool:
    """Whether what listens on the port is this checkout's own stack."""
    if holder and holder.cwd.startswith(f"{layout.run}/"):
        return True
    in_docker = {chosen, mode.recorded(layout.mode_file)} & {"gpu", "cpu"}
    return bool(in_docker) and Containers(layout.root).publish(number)


def token(layout: Layout) -> list[Check]:
    path = layout.hf_token
    if path.is_dir():
        return [filechecks.token(None, is_folder=True)]
    try:
        data: bytes | None = path.read_bytes()
    except FileNotFoundError:
        data = None
    except PermissionError:
        return [
            Check("hf token", "fail", "secrets/hf_token unreadable", "mode 0444", "chmod 444 it")
        ]
    verdict = filechecks.token(data, is_folder=False)
    mode_check = _mode_of("hf token", path, layout) if data is not None else None
    if verdict.status != "fail" and mode_check:
        return [mode_check]
    refused = [] if verdict.status == "fail" else envcheck.token_value(layout)
    return refused or [verdict]


def api_keys(layout: Layout) -> list[Check]:
    try:
        records = keys.load(layout.api_keys)
    except StackError as error:
        return [_from_error("api keys", error)]
    if b"\r" in layout.api_keys.read_bytes():
        where = "secrets/gateway/api_keys.toml"
        fix = f"sed -i 's/\\r$//' {where}"
        return [Check("api keys", "fail", f"CR line ends in {where}", "LF line ends", fix)]
    wrong_mode = _mode_of("api keys", layout.api_keys, layout)
    return [wrong_mode or Check("api keys", "ok", f"{len(records)} in secrets/gateway")]


def _mode_of(name: str, path: Path, layout: Layout) -> Check | None:
    return filechecks.readable(name, str(path.relative_to(layout.root)), path.stat().st_mode)


def _from_error(name: str, error: StackError) -> Check:
    found, _, rest = str(error).removeprefix("found ").partition("; wanted ")
    wanted, _, fix = rest.partition("; fix: ")
    return Check(name, "fail", found, wanted, fix)
