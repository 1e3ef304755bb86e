"""Design rule 8, on the real numbers: silence and drains grow outwards, idle times shrink.

docs/limits.md is the table for people; here it is held to the files.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from common.front import ROOT, TEMPLATES
from launcher.drain import NOTICE_S
from launcher.life import TEARDOWN_S
from launcher.options import argv
from launcher.options import settings as launcher
from launcher.options.settings import OUTLIVE_S
from stackctl import programs

from gateway import health
from gateway.app import BODIES_IN_MEMORY
from gateway.bound import UNKNOWN
from gateway.client import MAX_AHEAD, MAX_HEAD
from gateway.drain import CUT_S
from gateway.health import READY_INTERVAL_S
from gateway.keyfields import LARGEST
from gateway.limits.window import SECOND, WINDOW
from gateway.routes.control import MAX_WATCHERS
from gateway.routes.conversation import BEGINNING, MOST
from gateway.routes.intake import UPLOAD_IDLE_S
from gateway.server import KEEP_ALIVE_S, STOP_S
from gateway.settings import Settings
from gateway.upstream import ejection
from gateway.upstream.engine import GONE_S, IDLE_EXPIRY_S
from gateway.upstream.routing import FEW, SHARE

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "k": 1024}


@dataclass(frozen=True)
class Setting:
    """A gateway setting: its default and the largest value it takes, in seconds."""

    default: float
    largest: float


def directive(template: str, name: str) -> list[str]:
    """The arguments of the only `name` in that template."""
    text = (TEMPLATES / f"{template}.template").read_text()
    found = re.findall(rf"^ *{name} +([^;]+);", text, re.MULTILINE)
    assert len(found) == 1, f"{name} stands {len(found)} times in {template}"
    return str(found[0]).split()


def number(text: str) -> int:
    """nginx's and Compose's numbers with a unit, in seconds or bytes."""
    match = re.fullmatch(r"(\d+)([smhk]?)", text)
    assert match, text
    return int(match[1]) * UNITS[match[2]]


def nginx(template: str, name: str) -> int:
    return number(directive(template, name)[-1])


def setting(name: str) -> Setting:
    field = Settings.model_fields[name]
    bounds = [getattr(each, "le", None) for each in field.metadata]
    bounds += [getattr(each, "le", None) for one in field.metadata for each in _inside(one)]
    return Setting(field.default, next(bound for bound in bounds if bound is not None))


def _inside(one: object) -> Iterator[object]:
    yield from getattr(one, "metadata", ())


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def grace(compose: dict[str, Any], service: str) -> int:
    return number(compose[service]["stop_grace_period"])


def engine_keep_alive() -> int:
    values = argv.environment(launcher.load({"ENGINE_DEVICE": "cpu"}), {})
    return int(values["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"])


def test_the_gateway_reports_silence_before_nginx_does() -> None:
    queue, hold = setting("queue_timeout_s").largest, setting("hold_s").largest
    first, idle = setting("first_byte_timeout_s").largest, setting("idle_timeout_s").largest
    # Queue and hold once each, whatever happens (gateway/gate.py), and one re-send (relay.py).
    longest = max(queue + hold + 2 * first, idle)
    assert longest < nginx("server/proxy.conf", "proxy_read_timeout")
    assert longest < nginx("server/proxy.conf", "proxy_send_timeout")


def test_idle_connections_die_from_the_outside_in() -> None:
    to_gateway = nginx("http/upstream.conf", "keepalive_timeout")
    assert to_gateway + 5 <= KEEP_ALIVE_S
    assert engine_keep_alive() >= IDLE_EXPIRY_S + 5
    assert nginx("http/timeouts.conf", "keepalive_timeout") > 60  # load balancers in front


def test_one_body_limit(compose: dict[str, Any]) -> None:
    limit = Settings.model_fields["max_body_bytes"].default
    dockerfile = (ROOT / "docker/nginx/Dockerfile").read_text()
    assert re.findall(r"STACK_MAX_BODY=(\d+)", dockerfile) == [str(limit)]
    shown = compose["nginx"]["environment"]["STACK_MAX_BODY"]
    assert shown == f"${{GATEWAY_MAX_BODY_BYTES:-{limit}}}"
    assert str(limit) == programs.MAX_BODY


def test_nginx_answers_a_large_head_before_the_gateway_would() -> None:
    count, size = directive("http/timeouts.conf", "large_client_header_buffers")
    assert int(count) * number(size) < MAX_HEAD


def test_drains_grow_outwards(compose: dict[str, Any]) -> None:
    gateway = setting("drain_s").largest + CUT_S + STOP_S
    worker = nginx("nginx.conf", "worker_shutdown_timeout")
    assert gateway < grace(compose, "gateway")
    assert gateway < worker < grace(compose, "nginx")
    default = f"{setting('drain_s').default:g}"
    assert compose["vllm"]["environment"]["ENGINE_DRAIN_S"] == f"${{GATEWAY_DRAIN_S:-{default}}}"
    engine = setting("drain_s").largest + OUTLIVE_S
    assert gateway < engine < engine + TEARDOWN_S < grace(compose, "vllm")


def test_gateways_look_twice_before_an_engine_stops() -> None:
    assert 2 * READY_INTERVAL_S < NOTICE_S


def documented() -> dict[str, str]:
    """First and second column of every table in docs/limits.md."""
    text = (ROOT / "docs" / "limits.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines()]
    return {row[0].replace("`", ""): row[1] for row in rows if len(row) == 2}


def in_force(compose: dict[str, Any]) -> dict[str, float | str]:
    count, size = directive("http/timeouts.conf", "large_client_header_buffers")
    proxy, clients = "server/proxy.conf", "http/timeouts.conf"
    settings = ("queue_timeout_s", "hold_s", "first_byte_timeout_s", "idle_timeout_s", "drain_s")
    return {
        **{
            f"nginx {name}": nginx(proxy, name)
            for name in ("proxy_read_timeout", "proxy_send_timeout", "proxy_connect_timeout")
        },
        **{
            f"nginx {name}": nginx(clients, name)
            for name in ("client_header_timeout", "client_body_timeout", "send_timeout")
        },
        **{
            f"gateway GATEWAY_{name.upper()}": f"{each.default:g} ≤ {each.largest:g}"
            for name, each in ((name, setting(name)) for name in settings)
        },
        **{
            f"{each} stop_grace_period": grace(compose, service)
            for each, service in (("nginx", "nginx"), ("gateway", "gateway"), ("engine", "vllm"))
        },
        "nginx keepalive_timeout (clients)": nginx(clients, "keepalive_timeout"),
        "nginx keepalive_timeout (gateway)": nginx("http/upstream.conf", "keepalive_timeout"),
        "gateway KEEP_ALIVE_S": KEEP_ALIVE_S,
        "gateway IDLE_EXPIRY_S": IDLE_EXPIRY_S,
        "engine VLLM_HTTP_TIMEOUT_KEEP_ALIVE": engine_keep_alive(),
        "request body, nginx STACK_MAX_BODY": programs.MAX_BODY,
        "request body, GATEWAY_MAX_BODY_BYTES": Settings.model_fields["max_body_bytes"].default,
        "request head, nginx large_client_header_buffers": int(count) * number(size),
        "request head, gateway MAX_HEAD": MAX_HEAD,
        "requests behind the one being answered on a connection, gateway MAX_AHEAD": MAX_AHEAD,
        "bodies of the largest size held at one time, gateway BODIES_IN_MEMORY": BODIES_IN_MEMORY,
        "watchers of /status/events, gateway MAX_WATCHERS": MAX_WATCHERS,
        "gateway UPLOAD_IDLE_S": UPLOAD_IDLE_S,
        "connections of one address, nginx limit_conn": nginx(clients, "limit_conn"),
        "connections, nginx worker_connections": nginx("nginx.conf", "worker_connections"),
        "at the engines, GATEWAY_MAX_CONCURRENCY": "automatic",
        "at an engine that tells no max_num_seqs, UNKNOWN": UNKNOWN,
        "waiting for a slot, GATEWAY_QUEUE_SIZE": Settings.model_fields["queue_size"].default,
        "waiting for one engine while others serve, GATEWAY_QUEUE_SIZE": Settings.model_fields[
            "queue_size"
        ].default,
        "for an engine that is silent, launcher and all, seconds GONE_S": GONE_S,
        "busier than the mean before an engine is passed over, SHARE": SHARE,
        "requests on top of that, FEW": FEW,
        "bytes of a prompt that tell conversations apart, BEGINNING": BEGINNING,
        "characters of a message that do, MOST": MOST,
        "a key's window, seconds WINDOW": WINDOW // SECOND,
        **{f"a key's largest {name}": value for name, value in LARGEST.items()},
        "a look at each engine, READY_INTERVAL_S": health.READY_INTERVAL_S,
        "a look at one that is not ready, WAITING_INTERVAL_S": health.WAITING_INTERVAL_S,
        "time-outs of /health in a row, PATIENCE": health.PATIENCE,
        "answers that break in a row, BROKEN": ejection.BROKEN,
        "the shortest ejection, seconds FIRST_S": ejection.FIRST_S,
        "the longest ejection, seconds LONGEST_S": ejection.LONGEST_S,
        "without one for so long, seconds CALM_S": ejection.CALM_S,
        "good looks in a row before it is back, RETURN": ejection.RETURN,
        "nginx worker_shutdown_timeout": nginx("nginx.conf", "worker_shutdown_timeout"),
        "engine OUTLIVE_S": OUTLIVE_S,
        "engine NOTICE_S": NOTICE_S,
    }


def test_the_table_for_people_is_true(compose: dict[str, Any]) -> None:
    shown = documented()
    assert {name: shown.get(name) for name in in_force(compose)} == {
        name: value if isinstance(value, str) else f"{value:g}" if value < 1e5 else str(value)
        for name, value in in_force(compose).items()
    }


def test_every_row_of_the_table_is_checked(compose: dict[str, Any]) -> None:
    prose = {"limit", "---", "client", "engine"}
    assert documented().keys() - prose == in_force(compose).keys()
