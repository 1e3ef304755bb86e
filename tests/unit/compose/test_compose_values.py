"""What is written in .env reaches launcher and gateway as it was meant (B51 B53 B55 B56)."""

from __future__ import annotations

import pytest
from common.compose import Render
from stackctl import names

JSON = '{"mode": 3, "x": ["a b"]}'


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("'a$b'", "a$b"),
        ("'$2b$12$xyz'", "$2b$12$xyz"),
        ("'${X}'", "${X}"),
        ("'a$$b'", "a$$b"),
        # Compose expands these two forms itself: .env.example says to write single quotes.
        ("a$$b", "a$b"),
        ("a$b", "a"),
    ],
)
def test_dollar_in_a_value(render: Render, written: str, seen: str) -> None:
    environment = render(f"VLLM_EXTRA_ARGS={written}\n".encode()).environment("vllm")
    assert environment["VLLM_EXTRA_ARGS"] == seen


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ('{"mode":3}', '{"mode":3}'),
        ("'{\"mode\":3}'", '{"mode":3}'),
        (JSON, JSON),
        (f"'{JSON}'", JSON),
        ('\'{"a":"$HOME"}\'', '{"a":"$HOME"}'),
        ("3", "3"),
        ("{bad", "{bad"),
    ],
)
def test_json_in_a_value(render: Render, written: str, seen: str) -> None:
    environment = render(f"COMPILATION_CONFIG={written}\n".encode()).environment("vllm")
    assert environment["COMPILATION_CONFIG"] == seen


def test_quoted_spaces_stay_one_value(render: Render) -> None:
    env = b"""VLLM_EXTRA_ARGS='--chat-template "/models/a b.jinja" --seed 1'\n"""
    seen = render(env).environment("vllm")["VLLM_EXTRA_ARGS"]
    assert seen == '--chat-template "/models/a b.jinja" --seed 1'


@pytest.mark.parametrize("encoded", [b"\xef\xbb\xbfMODEL=one\nMAX_MODEL_LEN=2048\n",
                                     b"MODEL=one\r\nMAX_MODEL_LEN=2048\r\n"])  # fmt: skip
def test_bom_and_crlf(render: Render, encoded: bytes) -> None:
    environment = render(encoded).environment("vllm")
    assert environment["MODEL"] == "one"
    assert environment["MAX_MODEL_LEN"] == "2048"


def test_utf16_is_refused(render: Render) -> None:
    assert render("MODEL=one\n".encode("utf-16")).code != 0


def test_unset_names_are_left_out(render: Render) -> None:
    environment = render().environment("vllm")
    assert set(environment) == {"ENGINE_DEVICE", "ENGINE_DRAIN_S", "HF_HUB_OFFLINE"}
    assert "MODEL" not in render().environment("model")


@pytest.mark.parametrize("written", ["", '""', "' '", "''"])
def test_an_empty_value_arrives_empty_or_not_at_all(render: Render, written: str) -> None:
    """Launcher and gateway take empty and blank as unset; Compose must not refuse it before."""
    rendered = render(f"MAX_MODEL_LEN={written}\nGATEWAY_HOLD_S={written}\n".encode())
    assert rendered.environment("vllm").get("MAX_MODEL_LEN", "").strip() == ""
    assert rendered.environment("gateway").get("GATEWAY_HOLD_S", "").strip() == ""


@pytest.mark.parametrize("written", [b"", b"GATEWAY_USAGE_DB=\n"])
def test_the_ledger_lies_on_its_volume_unless_told_otherwise(
    render: Render, written: bytes
) -> None:
    gateway = render(written).service("gateway")
    folders = {mount["target"] for mount in gateway["volumes"] if mount["type"] == "volume"}
    assert folders == {"/var/lib/gateway"}
    assert gateway["environment"]["GATEWAY_USAGE_DB"] == "/var/lib/gateway/usage.sqlite3"
    other = render(b"GATEWAY_USAGE_DB='postgresql://u:p$x@db/usage'\n").environment("gateway")
    assert other["GATEWAY_USAGE_DB"] == "postgresql://u:p$x@db/usage"


def test_the_shell_wins_over_the_file_even_when_empty(render: Render) -> None:
    env = b"MAX_MODEL_LEN=2048\n"
    for value in ("4096", ""):
        environment = render(env, overriding={"MAX_MODEL_LEN": value}).environment("vllm")
        assert environment["MAX_MODEL_LEN"] == value


def test_every_name_of_the_settings_reaches_its_service(render: Render) -> None:
    listed = (*names.LAUNCHER, *names.GATEWAY_TUNABLE)
    rendered = render("".join(f"{name}=1\n" for name in listed).encode())
    assert set(names.LAUNCHER) <= set(rendered.environment("vllm"))
    assert set(names.GATEWAY_TUNABLE) <= set(rendered.environment("gateway"))


def test_gateway_wiring_is_not_for_the_settings_to_change(render: Render) -> None:
    env = b"GATEWAY_HOST=127.0.0.1\nGATEWAY_PORT=1\nGATEWAY_UPSTREAMS=http://elsewhere\n"
    environment = render(env).environment("gateway")
    assert environment["GATEWAY_HOST"] == "0.0.0.0"
    assert environment["GATEWAY_PORT"] == "8081"
    assert environment["GATEWAY_UPSTREAMS"] == "http://vllm:8000"
    assert environment["GATEWAY_STATUS_URLS"] == "http://vllm:8001"


def test_body_limit_is_one_number_for_nginx_and_gateway(render: Render) -> None:
    rendered = render(b"GATEWAY_MAX_BODY_BYTES=1048576\n")
    assert rendered.environment("nginx")["STACK_MAX_BODY"] == "1048576"
    assert rendered.environment("gateway")["GATEWAY_MAX_BODY_BYTES"] == "1048576"
    empty = render(b"GATEWAY_MAX_BODY_BYTES=\n").environment("nginx")["STACK_MAX_BODY"]
    assert empty == render().environment("nginx")["STACK_MAX_BODY"] == "33554432"


def test_proxies_reach_builds_and_the_download_only(render: Render) -> None:
    rendered = render(overriding={"HTTPS_PROXY": "http://proxy:3128"})
    assert rendered.environment("model")["HTTPS_PROXY"] == "http://proxy:3128"
    assert rendered.service("gateway")["build"]["args"]["HTTPS_PROXY"] == "http://proxy:3128"
    for name in ("nginx", "gateway", "vllm"):
        assert "HTTPS_PROXY" not in rendered.environment(name), name


def test_debug_comes_from_the_call_and_to_the_engine_alone(render: Render) -> None:
    rendered = render(overriding={"ENGINE_DEBUG": "1"})
    seen = [
        name for name in rendered.model["services"] if "ENGINE_DEBUG" in rendered.environment(name)
    ]
    assert seen == ["vllm"]
