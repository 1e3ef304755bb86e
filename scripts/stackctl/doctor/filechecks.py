"""Judges of what the operator wrote: .env, secrets and model folders. Pure as the host's."""

from pathlib import Path

from stackctl import names
from stackctl.doctor.checks import Check
from stackctl.envfile import EnvFile

# The one overlay that reads a name of the gateway's wiring from .env.
WORKERS_OVERLAY = "compose/workers.yml"


def env_names(file: EnvFile | None, environment: dict[str, str]) -> list[Check]:
    """Unknown names, in .env and (GATEWAY_* only) in the environment."""
    if file is None:
        return [Check("env", "fail", "no .env", "the settings", "make init")]
    strays = [n for n in environment if n.startswith("GATEWAY_") or n == names.DEBUG]
    unknown = [name for name in [*file.values, *strays] if not names.is_known(name)]
    bad = [
        _unknown(name, ".env" if name in file.values else "the environment")
        for name in dict.fromkeys(unknown)
    ]
    return bad + _leftovers(file) + _wiring(file) or [Check("env", "ok", f"{len(file.values)} set")]


def _unknown(name: str, where: str) -> Check:
    close = names.nearest(name)
    fix = f"did you mean {close}?" if close else "remove it"
    if name == names.DEBUG:
        fix = "remove it; scripts/stack up --debug is for one start"
        wanted = "no debug mode that is left on"
        return Check("env", "fail", f"{name} in {where}", wanted, fix)
    if name in {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}:
        fix = "put the token into secrets/hf_token and remove the line"
    return Check("env", "fail", f"unknown name {name} in {where}", "a name of .env.example", fix)


def _leftovers(file: EnvFile) -> list[Check]:
    found = [
        text for here, text in ((file.has_bom, "a BOM"), (file.has_cr, "CR line ends")) if here
    ]
    if not found:
        return []
    fix = "sed -i -e '1s/^\\xef\\xbb\\xbf//' -e 's/\\r$//' .env"
    return [Check("env", "warn", f"{' and '.join(found)} in .env", "plain LF text", fix)]


def _wiring(file: EnvFile) -> list[Check]:
    read = {"GATEWAY_WORKERS"} if WORKERS_OVERLAY in file.values.get("COMPOSE_FILE", "") else set()
    found = [name for name in names.GATEWAY_WIRING if file.values.get(name, "").strip()]
    found = [name for name in found if name not in read]
    wanted = "these left to the stack (it wires its own parts)"
    return [Check("env", "warn", f"{name} in .env", wanted, "remove it") for name in found]


def pins(lacking: list[str], made: str, *, named: bool) -> Check:
    """compose/pinned.yml: `lacking` are images in force without a digest, `named` whether
    COMPOSE_FILE has it."""
    where = "compose/pinned.yml"
    if lacking:
        fix = "make pin, or scripts/stack pin --unpin to go by tags"
        found = f"no digest of {', '.join(lacking)} in {where}"
        return Check("pins", "fail", found, "one for each image (its tag was edited since)", fix)
    if not named:
        found = f"{where}, which COMPOSE_FILE in the environment leaves out"
        return Check("pins", "warn", found, "it named, or none", f"add :{where} to it")
    return Check("pins", "ok", f"images by digest, as of {made}")


def token(data: bytes | None, is_folder: bool) -> Check:
    """secrets/hf_token: `data` None = missing. The value itself is never shown."""
    where = "secrets/hf_token"
    if is_folder:
        fix = f"rmdir {where} && make init"
        return Check("hf token", "fail", f"a folder at {where}", "a file", fix)
    if data is None:
        return Check("hf token", "fail", f"no {where}", "a file (it may be empty)", "make init")
    if b"\r" in data:
        fix = f"sed -i 's/\\r$//' {where}"
        return Check("hf token", "fail", f"CR line ends in {where}", "LF line ends", fix)
    text = "set" if data.strip() else "empty (enough for models without a licence to accept)"
    return Check("hf token", "ok", text)


def readable(name: str, path: str, mode: int) -> Check | None:
    """A file secret keeps its mode in the container, where another user reads it."""
    if mode & 0o004:
        return None
    found = f"mode {mode & 0o777:04o} of {path}"
    return Check(name, "fail", found, "0444 (the folder is 0700)", f"chmod 444 {path}")


def local_model(wanted: str, seen: Path | None, there: tuple[str, ...]) -> Check:
    """MODEL as a folder: `seen` is where this host has it (None: no container could see it),
    `there` the names below .run/models."""
    if seen is not None and (seen / "config.json").is_file():
        return Check("model", "ok", f"{wanted} is a folder with a config.json")
    listed = f" (there are {', '.join(there)})" if there else ""
    found = f"MODEL={wanted}, which is no model's folder"
    if seen is None:
        found = f"MODEL={wanted}, which no container sees"
    fix = f"put the folder into .run/models{listed} and set MODEL=/models/NAME in .env"
    return Check("model", "fail", found, "a folder with config.json, weights and tokenizer", fix)
