"""Settings, errors, request ids: values in, values out."""

from __future__ import annotations

import inspect
import json
import re

import pytest

from gateway import errors
from gateway.errors import GatewayError
from gateway.forms import error_body
from gateway.health import judge
from gateway.log import Record, request_id
from gateway.settings import Settings, SettingsError, load_settings

MODELS = ({"id": "m"},)


def test_defaults_need_no_environment() -> None:
    settings = load_settings({"PATH": "/bin", "GATEWAY_PORT": " ", "GATEWAY_HOLD_S": ""})
    assert settings == load_settings({})
    assert settings.upstreams == ("http://127.0.0.1:8000",)


def test_lists_are_split_and_cleaned() -> None:
    environ = {"GATEWAY_UPSTREAMS": "http://a:1, http://b:2/ ,", "GATEWAY_LOG_LEVEL": "INFO"}
    settings = load_settings(environ)
    assert settings.upstreams == ("http://a:1", "http://b:2")
    assert settings.log_level == "info"


def test_each_finding_has_its_line() -> None:
    environ = {"GATEWAY_PORT": "x", "GATEWAY_DRAIN_S": "-1", "GATEWAY_NEW": "1"}
    with pytest.raises(SettingsError) as caught:
        load_settings(environ)
    names = sorted(line.split(":")[0] for line in caught.value.lines)
    assert names == ["GATEWAY_DRAIN_S", "GATEWAY_NEW", "GATEWAY_PORT"]


SECONDS = (
    "QUEUE_TIMEOUT_S",
    "HOLD_S",
    "FIRST_BYTE_TIMEOUT_S",
    "IDLE_TIMEOUT_S",
    "HEARTBEAT_S",
    "DRAIN_S",
)
WHOLE = ("PORT", "WORKERS", "MAX_BODY_BYTES", "MAX_CONCURRENCY", "QUEUE_SIZE")


@pytest.mark.parametrize("name", SECONDS + WHOLE)
@pytest.mark.parametrize("value", ["1e2", "inf", "nan", "+5", "1_0", "-5", ".5", "5.", "٣", "0x5"])
def test_numbers_are_plain(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({f"GATEWAY_{name}": value})
    (line,) = caught.value.lines
    assert line.startswith(f"GATEWAY_{name}: found {value!r}; wanted ")
    assert "in plain d" in line


def test_the_bound_is_automatic_unless_it_is_set() -> None:
    assert load_settings({"GATEWAY_MAX_CONCURRENCY": " "}).max_concurrency is None
    assert load_settings({"GATEWAY_MAX_CONCURRENCY": "8"}).max_concurrency == 8
    for wrong in ("0", "100001"):
        with pytest.raises(SettingsError, match="1 to 100000, or empty for automatic"):
            load_settings({"GATEWAY_MAX_CONCURRENCY": wrong})


@pytest.mark.parametrize("name", WHOLE)
def test_counts_have_no_fraction(name: str) -> None:
    with pytest.raises(SettingsError, match="plain digits"):
        load_settings({f"GATEWAY_{name}": "1024.0"})


def test_plain_decimals_are_taken() -> None:
    settings = load_settings({"GATEWAY_DRAIN_S": "2.5", "GATEWAY_HOLD_S": " 007 "})
    assert (settings.drain_s, settings.hold_s) == (2.5, 7)


@pytest.mark.parametrize("name", [each.upper() for each in Settings.model_fields])
@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_blank_is_unset(name: str, blank: str) -> None:
    assert load_settings({f"GATEWAY_{name}": blank}) == load_settings({})


@pytest.mark.parametrize("url", ["http://ü:80", "http://a b:80", "http://u:p@a:80", "http://:p@a"])
def test_an_engine_url_has_a_plain_host(url: str) -> None:
    with pytest.raises(SettingsError, match="GATEWAY_UPSTREAMS"):
        load_settings({"GATEWAY_UPSTREAMS": url})


def test_every_setting_says_what_it_wants() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def leaves(kind: type[GatewayError]) -> list[type[GatewayError]]:
    return [kind, *(below for each in kind.__subclasses__() for below in leaves(each))]


def test_the_drawing_of_the_error_tree_is_the_tree() -> None:
    drawn = dict(re.findall(r"── (\w+)\s+(\d{3})", inspect.getdoc(errors) or ""))
    real = {each.__name__: str(each.status) for each in leaves(GatewayError)[1:]}
    # ModelNotFound is the second code drawn beside NotFound.
    assert drawn == {name: status for name, status in real.items() if name != "ModelNotFound"}


def test_every_error_is_an_openai_error() -> None:
    body = json.loads(error_body(errors.Overloaded("füll", 3), "openai", None))
    assert body == {
        "error": {"message": "füll", "type": "server_error", "param": None, "code": "overloaded"}
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([b"abc-1.2_3"], True),
        ([b"a" * 64], True),
        ([b"a" * 65], False),
        ([b""], False),
        ([b"a b"], False),
        ([b"a\xe9"], False),
        ([b"a", b"b"], False),
        ([], False),
    ],
)
def test_request_ids(given: list[bytes], kept: bool) -> None:
    headers = [(b"x-request-id", value) for value in given]
    assert request_id(headers, lambda: "new") == (given[0].decode() if kept else "new")


def test_a_log_line_has_every_field() -> None:
    record = Record("id", "POST", started=1.0, first_byte_at=1.5)
    line = json.loads(record.line(now=2.0, wall=100.0))
    assert (line["first_byte_ms"], line["duration_ms"], line["ts"]) == (500.0, 1000.0, 100.0)


@pytest.mark.parametrize(
    ("status", "healthy", "models", "ready"),
    [
        (None, True, MODELS, True),
        (None, False, MODELS, False),
        (None, True, (), False),
        ({"ready": True}, True, MODELS, True),
        ({"ready": False, "phase": "draining"}, True, MODELS, False),
        ({}, True, MODELS, False),
    ],
)
def test_readiness(
    status: dict[str, object] | None,
    healthy: bool,
    models: tuple[dict[str, str], ...],
    ready: bool,
) -> None:
    assert judge(healthy, models, status).ready is ready
