"""The rendered configuration, by structure: what nginx -t accepts and yet would break streams.

Each rule is shown to catch the widely copied line that it is about.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import crossplane
import pytest
from common.front import BINARY, ROOT, TEMPLATES, Edit, edited_templates, replace, variables
from stackctl.nginx import NAME, render, start_command

NAMES = {
    "LISTEN",
    "GATEWAY",
    "RESOLVER",
    "MAX_BODY",
    "CORS_ORIGINS",
    "PREFIX",
    "ACCESS_LOG",
    "ERROR_LOG",
}
CONTAINER = {"STACK_LISTEN": "8080", "STACK_GATEWAY": "gateway:8081"}
CONTAINER |= {"STACK_RESOLVER": "127.0.0.11"}
# Variables that hold a key, a query string or a prompt.
SECRET = re.compile(
    r"\$\{?(request|request_uri|args|arg_\w+|query_string|is_args|request_body\w*"
    r"|http_(?!x_request_id)\w+|cookie_\w+|remote_user)\b"
)


@dataclass(frozen=True)
class Directive:
    """One directive; `path`: the names and arguments of the blocks around it."""

    path: tuple[str, ...]
    name: str
    args: tuple[str, ...]


def parse(out: Path) -> list[Directive]:
    payload = crossplane.parse(str(out / "nginx.conf"), combine=True)
    assert payload["status"] == "ok", payload["errors"]
    return list(_walk(payload["config"][0]["parsed"], ()))


def _walk(block: list[dict[str, object]], path: tuple[str, ...]) -> Iterator[Directive]:
    for item in block:
        name, args = str(item["directive"]), tuple(map(str, item["args"]))  # type: ignore[call-overload]
        yield Directive(path, name, args)
        if "block" in item:
            yield from _walk(item["block"], (*path, " ".join((name, *args))))  # type: ignore[arg-type]


def rendered(folder: Path, edits: Mapping[str, Edit] | None = None) -> list[Directive]:
    out = folder / "out"
    templates = edited_templates(folder, edits or {})
    render(templates, out, variables(out, 8080, "gateway:8081") | CONTAINER)
    return parse(out)


def faults(config: list[Directive]) -> list[str]:
    """What would hold a stream back, repeat a request, or strand it at an old address."""
    found = [fault for one in config for fault in _faults_of(one)]
    servers = [
        one for one in config if one.name == "server" and one.path[-1:] == ("upstream gateway",)
    ]
    if not all("resolve" in one.args for one in servers) or not servers:
        found.append("an upstream server without resolve")
    beside = {one.name for one in config if one.path[-1:] == ("upstream gateway",)}
    found += [f"no {name} in the upstream" for name in sorted({"zone", "keepalive"} - beside)]
    for proxied in (one for one in config if one.name == "proxy_pass"):
        found += _faults_beside(proxied, config)
    return found


def _faults_of(one: Directive) -> Iterator[str]:
    match one.name, one.args:
        case "proxy_set_header", (header, value) if header.lower() in {"connection", "upgrade"}:
            if value:
                yield f'{header} "{value}"'
        case "proxy_next_upstream", args if args != ("off",):
            yield f"proxy_next_upstream {' '.join(args)}"
        case "proxy_pass", (target,) if target != "http://gateway":
            yield f"proxy_pass {target}"
        case (("proxy_intercept_errors" | "proxy_ignore_client_abort" | "gzip"), ("on",)):
            yield f"{one.name} on"
        case "proxy_set_header", (_, value) if "proxy_add_x_forwarded_for" in value:
            yield "X-Forwarded-For appended to"


REQUIRED_BESIDE_PROXY_PASS = {
    ("proxy_http_version", "1.1"),
    ("proxy_set_header", "Connection", ""),
    ("proxy_buffering", "off"),
    ("proxy_next_upstream", "off"),
    ("proxy_set_header", "X-Forwarded-For", "$remote_addr"),
}


def _faults_beside(proxied: Directive, config: list[Directive]) -> list[str]:
    beside = {(one.name, *one.args) for one in config if one.path == proxied.path}
    missing = REQUIRED_BESIDE_PROXY_PASS - beside
    return [f"{proxied.path[-1]}: no {' '.join(want)}" for want in sorted(missing)]


def test_the_shipped_configuration_has_no_fault(tmp_path: Path) -> None:
    assert faults(rendered(tmp_path)) == []


COPIED = {
    "websocket": ('Connection "";', 'Connection "upgrade";'),
    "upgrade": ('Upgrade    "";', "Upgrade $http_upgrade;"),
    "no keep-alive": ('proxy_set_header Connection "";', ""),
    "http/1.0": ("proxy_http_version 1.1;", "proxy_http_version 1.0;"),
    "buffered": ("proxy_buffering off;", "proxy_buffering on;"),
    "default buffering": ("proxy_buffering off;", ""),
    "retry": ("proxy_next_upstream off;", "proxy_next_upstream error timeout non_idempotent;"),
    "default retry": ("proxy_next_upstream off;", ""),
    "path": ("http://gateway;", "http://gateway/;"),
    "error pages": ("proxy_intercept_errors off", "proxy_intercept_errors on"),
    "abort": ("proxy_ignore_client_abort off", "proxy_ignore_client_abort on"),
    "spoofable": ("X-Forwarded-For   $remote_addr", "X-Forwarded-For $proxy_add_x_forwarded_for"),
}


@pytest.mark.parametrize("name", COPIED)
def test_a_copied_proxy_line_is_caught(tmp_path: Path, name: str) -> None:
    assert faults(rendered(tmp_path, {"server/proxy.conf": replace(*COPIED[name])}))


@pytest.mark.parametrize("part", [" resolve", "  zone gateway 128k;\n", "  keepalive 256;\n"])
def test_an_upstream_without_its_parts_is_caught(tmp_path: Path, part: str) -> None:
    assert faults(rendered(tmp_path, {"http/upstream.conf": replace(part, "")}))


def test_gzip_is_caught(tmp_path: Path) -> None:
    assert faults(rendered(tmp_path, {"http/basics.conf": replace("gzip off", "gzip on")}))


def test_the_log_has_no_variable_with_a_secret(tmp_path: Path) -> None:
    formats = [one for one in rendered(tmp_path) if one.name == "log_format"]
    assert [one.args[:2] for one in formats] == [("json", "escape=json")]
    assert not SECRET.search(" ".join(formats[0].args[2:]))
    assert SECRET.search("$request_uri")
    assert SECRET.search("$http_authorization")


def test_headers_are_added_together_or_not_at_all(tmp_path: Path) -> None:
    """add_header in a block drops those around it, so each such block includes the common ones."""
    config = rendered(tmp_path)
    for one in (one for one in config if one.name == "add_header"):
        beside = {other.args[0] for other in config if other.path == one.path and other.args}
        assert {"X-Request-Id", "X-Accel-Buffering"} <= beside, one.path


def test_templates_use_the_agreed_names_only() -> None:
    used = {
        name for path in TEMPLATES.rglob("*.template") for name in NAME.findall(path.read_text())
    }
    assert used <= {f"STACK_{name}" for name in NAMES}
    dockerfile = (ROOT / "docker/nginx/Dockerfile").read_text()
    assert all(f"{name}=" in dockerfile for name in used)


@pytest.mark.parametrize("values", [{}, CONTAINER], ids=["local", "container"])
def test_nginx_accepts_it_without_a_warning(tmp_path: Path, values: dict[str, str]) -> None:
    out = tmp_path / "a path with spaces"
    out.mkdir()
    logs = {"STACK_ACCESS_LOG": "/dev/stdout", "STACK_ERROR_LOG": "stderr"}
    render(TEMPLATES, out, variables(out, 8080, "127.0.0.1:8081") | logs | values)
    command = [*start_command(str(BINARY), out, as_root=False), "-t"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr
    assert "[emerg]" not in done.stderr


def test_without_rendered_templates_nginx_stops(tmp_path: Path) -> None:
    """The image's entrypoint goes on when it cannot write; its command names our own file."""
    dockerfile = (ROOT / "docker/nginx/Dockerfile").read_text()
    assert '"-c", "/tmp/nginx/nginx.conf"' in dockerfile
    command = start_command(str(BINARY), tmp_path, as_root=False)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode != 0
    assert "nginx.conf" in done.stderr
