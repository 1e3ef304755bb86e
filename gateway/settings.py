"""Settings: every GATEWAY_* name with its default, its range and the reason for both.

Read once, at the edge (`__main__`), and passed down. An empty or blank value means unset; a
GATEWAY_* name that is not known here is an error, since it is most likely a misspelt limit.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.cors import ANY, is_origin

PREFIX = "GATEWAY_"

# Wanted texts double as documentation: `NAME: found …; wanted <text>; fix …`.
# The upper ends are bounds for the layers outside: nginx waits longer than hold, queue and first
# byte together, and its workers and Compose longer than the drain (docs/limits.md has the sums).
Seconds = Annotated[float, Field(ge=0.05, le=3600, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
Urls = tuple[str, ...]
# How numbers are written, by type. The launcher and nginx read some of the same values, and so do
# people: no 1e2, inf, +5 or 1_0, which Python would take.
_WHOLE = (re.compile(r"[0-9]{1,12}"), ", in plain digits")
FORMS: dict[object, tuple[re.Pattern[str], str]] = {
    int: _WHOLE,
    int | None: _WHOLE,
    float: (re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"), ", in plain decimals such as 30 or 0.5"),
}

VALKEY = re.compile(r"(valkey|redis)://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[0-9]{1,4})?")


class SettingsError(Exception):
    """The environment cannot be used. `lines`: one finding a line, ready for stderr."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Settings(BaseSettings):
    """What an operator can turn. Field docs: why this default."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    # Loopback unless somebody decides otherwise; the container sets 0.0.0.0.
    host: str = Field("127.0.0.1", min_length=1, description="an address to listen on")
    # 0 takes any free port (tests); the port in force is in the start-up log line.
    port: int = Field(8081, ge=0, le=65_535, description="a port, 0 to 65535 (0: any free one)")
    # One worker carries one H200; more share their limits through Valkey (docs/workers.md).
    workers: int = Field(1, ge=1, le=64, description="worker processes, 1 to 64")
    # Read only with more than one worker. No password: it is on a network of its own.
    valkey_url: str = Field("", description="valkey://host:port of the workers' Valkey")
    upstreams: Urls = Field(
        ("http://127.0.0.1:8000",), description="engines as http://host:port, comma between them"
    )
    # The launcher's status URL of each upstream, in the same order; empty: phases stay unknown.
    status_urls: Urls = Field(
        (), description="as many http://host:port as GATEWAY_UPSTREAMS has, or none"
    )
    api_keys_file: Path = Field(
        Path("secrets/gateway/api_keys.toml"), description="the path of a TOML file with [[key]]"
    )
    # Judged where the ledger is opened (gateway/ledger): a URL may hold a password, so it is shown
    # nowhere. Empty: .run/usage/usage.sqlite3.
    usage_db: str = Field(
        "", repr=False, description="a file, postgresql://USER@HOST/DATABASE, or off"
    )
    # 32 MiB: a long context or a few base64 images. nginx has the same number.
    max_body_bytes: int = Field(
        33_554_432, ge=1024, le=1 << 30, description="bytes of one request body, 1024 to 1073741824"
    )
    # Empty: what the engines run, by their max_num_seqs and by what waits in them (bound.py).
    max_concurrency: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="requests at the engines at one time, 1 to 100000, or empty for automatic",
    )
    # As many as may run at most: at the measured rates the last one in line waits a few seconds.
    queue_size: int = Field(
        1024, ge=0, le=1_000_000, description="requests that may wait for a slot, 0 to 1000000"
    )
    # Longer than a burst, shorter than a client's patience.
    queue_timeout_s: Seconds = Field(30, description="seconds in the queue, 0.05 to 3600")
    # Longer than a warm engine start (60 s measured on a GPU, 30 to 126 s on CPU).
    hold_s: SecondsOrZero = Field(
        120, description="seconds a request waits for a ready engine, 0 to 3600"
    )
    # A non-stream answer sends its first byte when generation is over: thousands of tokens.
    first_byte_timeout_s: float = Field(
        600,
        ge=0.05,
        le=7200,
        allow_inf_nan=False,
        description="seconds from sending a request to its first body byte, 0.05 to 7200",
    )
    # Gaps between tokens are milliseconds; a preempted sequence may wait for tens of seconds.
    idle_timeout_s: Seconds = Field(
        120, description="seconds of silence in the middle of an answer, 0.05 to 3600"
    )
    # Comments into a silent stream, for proxies that cut silence. Off: some clients take them for
    # data. Looked at ten times a second, hence the least.
    heartbeat_s: float = Field(
        0,
        ge=0,
        le=3600,
        allow_inf_nan=False,
        description="seconds of silence for a comment in a stream, 0.2 to 3600, or 0 for none",
    )
    # Most streams end within it; the container's stop_grace_period has to be longer.
    drain_s: float = Field(
        60,
        ge=0,
        le=600,
        allow_inf_nan=False,
        description="seconds that running streams may take after SIGTERM, 0 to 600",
    )
    # Browsers may not call us unless somebody decides which pages; nginx knows the same list.
    cors_origins: Urls = Field(
        (), description="exact origins as https://app.example, comma between them, or * for any"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error"
    )

    @field_validator("upstreams", "status_urls", "cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: object, info: ValidationInfo) -> object:
        form = _form(info.field_name or "")
        if form and isinstance(value, str) and not form[0].fullmatch(value):
            raise ValueError("not a plain number")
        return value

    @field_validator("upstreams")
    @classmethod
    def _base_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        if not urls:
            raise ValueError("no engine is named")
        return tuple(_base_url(url) for url in urls)

    @field_validator("valkey_url")
    @classmethod
    def _valkey(cls, url: str) -> str:
        if url and not VALKEY.fullmatch(url):
            raise ValueError("not a Valkey URL")
        return url

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if origins != (ANY,) and not all(map(is_origin, origins)):
            raise ValueError("not an origin")
        return origins

    @field_validator("heartbeat_s")
    @classmethod
    def _not_all_the_time(cls, value: float) -> float:
        if 0 < value < 0.2:
            raise ValueError("too often")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load_settings` hands in: it reads the environment with our rules."""
        return (init_settings,)

    @model_validator(mode="after")
    def _one_status_url_each(self) -> Self:
        if self.status_urls and len(self.status_urls) != len(self.upstreams):
            raise ValueError(
                f"{PREFIX}STATUS_URLS: found {len(self.status_urls)} URLs for "
                f"{len(self.upstreams)} upstreams; wanted as many, in the same order, or none"
            )
        return self

    @model_validator(mode="after")
    def _workers_share(self) -> Self:
        if self.workers > 1 and not self.valkey_url:
            raise ValueError(
                f"{PREFIX}WORKERS: found {self.workers} and no {PREFIX}VALKEY_URL; wanted a Valkey "
                "that the workers share their limits through; fix: add compose/workers.yml to "
                f"COMPOSE_FILE, or set {PREFIX}VALKEY_URL=valkey://127.0.0.1:6379"
            )
        return self


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Settings from an environment. Raises SettingsError with one line a finding."""
    given = {
        name.removeprefix(PREFIX).lower(): value.strip()
        for name, value in environ.items()
        if name.startswith(PREFIX) and value.strip()
    }
    known = set(Settings.model_fields)
    lines = [_unknown(name, known) for name in sorted(given.keys() - known)]
    try:
        settings = Settings.model_validate({name: given[name] for name in given.keys() & known})
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise SettingsError(lines + [_finding(each, given) for each in found]) from None
    if lines:
        raise SettingsError(lines)
    return settings


def _unknown(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    fix = f"did you mean {PREFIX}{near[0].upper()}?" if near else "remove it"
    return f"{PREFIX}{name.upper()}: found a name that the gateway does not know; fix: {fix}"


def _finding(detail: ErrorDetails, given: Mapping[str, str]) -> str:
    if not detail["loc"]:  # a cross-check: its message is the whole line
        return detail["msg"].removeprefix("Value error, ")
    name = str(detail["loc"][0])
    form = _form(name)
    wanted = f"{Settings.model_fields[name].description}{form[1] if form else ''}"
    return (
        f"{PREFIX}{name.upper()}: found {given.get(name, '')[:80]!r}; wanted {wanted}; "
        "fix: correct it, or leave it empty for the default"
    )


def _form(name: str) -> tuple[re.Pattern[str], str] | None:
    """How that setting is written, when it is a number."""
    return FORMS.get(Settings.model_fields[name].annotation)


def _base_url(url: str) -> str:
    """A checked base URL without a trailing slash. Plain http: the engine network is private."""
    parts = urlsplit(url)
    plain = re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", parts.netloc)
    if parts.scheme != "http" or not plain or not parts.hostname or parts.port == 0:
        raise ValueError("not an http base URL")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("a base URL has no path")
    return f"http://{parts.netloc}"
