"""The settings in force: .env with the environment over it, as Compose merges them."""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass

from stackctl import envfile, names
from stackctl.errors import USAGE, StackError, problem
from stackctl.layout import Layout

DEFAULT_BIND = "127.0.0.1"
DEFAULT_PORT = 8080
DEFAULT_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Config:
    """`file` is .env alone; `values` what is in force, without empty and blank ones (= unset).
    `debug` is for the one start that asked for it, so that no file ever says it."""

    file: envfile.EnvFile | None
    values: Mapping[str, str]
    environment: Mapping[str, str]
    debug: bool = False

    def get(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def subset(self, wanted: tuple[str, ...]) -> dict[str, str]:
        return {name: self.values[name] for name in wanted if name in self.values}

    @property
    def bind(self) -> str:
        """NGINX_BIND, an address of this host. Raises StackError."""
        text = self.get("NGINX_BIND", DEFAULT_BIND)
        try:
            return str(ipaddress.ip_address(text))
        except ValueError as error:
            raise problem(
                f"NGINX_BIND={text}",
                "an IP address",
                "127.0.0.1 (this host only) or 0.0.0.0 (everyone) in .env",
                USAGE,
            ) from error

    @property
    def port(self) -> int:
        """NGINX_PORT, 1 to 65535. Raises StackError."""
        text = self.get("NGINX_PORT", str(DEFAULT_PORT))
        if text.isascii() and text.isdigit() and 1 <= int(text) <= 65535:
            return int(text)
        raise problem(f"NGINX_PORT={text}", "1 to 65535", f"NGINX_PORT={DEFAULT_PORT}", USAGE)

    def usage_db(self, layout: Layout) -> str:
        """Where a gateway of this host keeps its ledger."""
        return self.get("GATEWAY_USAGE_DB", str(layout.run / "usage" / "usage.sqlite3"))

    @property
    def url(self) -> str:
        """Where this host reaches the stack."""
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        address = ipaddress.ip_address(self.bind)
        if address.is_unspecified:
            address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"http://{host}:{port}"


def read(layout: Layout, environment: Mapping[str, str] | None = None) -> Config:
    """Read .env (it may be missing) under `environment`. Raises StackError naming the line."""
    shell = dict(os.environ if environment is None else environment)
    file = read_file(layout, shell)
    merged = dict(file.values) if file else {}
    merged.update({name: value for name, value in shell.items() if names.is_known(name)})
    values = {name: value.strip() for name, value in merged.items() if value.strip()}
    return Config(file, values, shell)


def read_file(layout: Layout, shell: Mapping[str, str]) -> envfile.EnvFile | None:
    try:
        return envfile.parse_bytes(layout.env_file.read_bytes(), shell.get)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise problem(".env is a directory", "a file", "rmdir .env && make init") from error
    except envfile.EnvFileError as error:
        raise StackError(
            f".env: found {error}; wanted NAME=value lines; fix: see .env.example", USAGE
        ) from error
