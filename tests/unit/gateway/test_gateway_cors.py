"""CORS: who may, what is said, and that nginx says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cors import EXPOSED, Cors, is_origin, preflight_headers
from gateway.settings import SettingsError, load_settings

ROOT = Path(__file__).resolve().parents[3]
APP = "https://app.example"


@pytest.mark.parametrize(
    "text",
    [
        APP,
        "http://localhost:5173",
        "http://[::1]:3000",
        "https://a.example:8443",
        "chrome-extension://abcdefghij",
        "tauri://localhost",
    ],
)
def test_origins(text: str) -> None:
    assert is_origin(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "null",
        "none",
        "app.example",
        f"{APP}/",
        f"{APP}/path",
        "https://App.example",
        "HTTPS://app.example",
        f"{APP}:443",
        "http://app.example:80",
        "https://*.example",
        "https://user@app.example",
        "https://",
        f"{APP}|x",
        f"{APP}\n",
        f'{APP}"',
    ],
)
def test_what_no_browser_sends_is_no_origin(text: str) -> None:
    assert not is_origin(text)


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", ()),
        (" , ", ()),
        ("*", ("*",)),
        (f" {APP} , http://localhost:5173,", (APP, "http://localhost:5173")),
    ],
)
def test_the_setting(text: str, origins: tuple[str, ...]) -> None:
    assert load_settings({"GATEWAY_CORS_ORIGINS": text}).cors_origins == origins


@pytest.mark.parametrize("text", [f"{APP},*", "*,*", f"{APP} http://b.example", "null", f"{APP}/"])
def test_a_bad_setting_is_one_line(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"GATEWAY_CORS_ORIGINS": text})
    (line,) = caught.value.lines
    assert line.startswith(
        f"GATEWAY_CORS_ORIGINS: found {text!r}; wanted exact origins as https://"
    )


def test_what_is_granted() -> None:
    grant = {
        b"access-control-allow-origin": APP.encode(),
        b"access-control-expose-headers": EXPOSED,
    }
    listed = Cors(frozenset({APP}))
    assert dict(listed.headers(APP)) == {**grant, b"vary": b"Origin"}
    assert listed.headers("https://evil.example") == [(b"vary", b"Origin")]
    assert listed.headers(None) == [(b"vary", b"Origin")]
    anyone = Cors(frozenset({"*"}))
    assert dict(anyone.headers(APP)) == {
        **grant,
        b"access-control-allow-origin": b"*",
    }
    assert anyone.headers(None) == []


def test_a_page_may_send_our_clients_headers_and_no_other() -> None:
    asked = "Authorization, content-type,x-stainless-os,anthropic-dangerous-direct-browser-access"
    refused = "cookie,x-forwarded-for,x-stainless-\xe9,x-stainless-a\nb,host,,"
    found = dict(preflight_headers(["POST", "GET"], f"{asked},{refused}"))
    granted = asked.lower().replace(" ", "").replace(",", ", ").encode()
    assert found[b"access-control-allow-headers"] == granted
    assert found[b"access-control-allow-methods"] == b"GET, POST"


def test_nothing_asked_nothing_granted() -> None:
    assert b"access-control-allow-headers" not in dict(preflight_headers(["GET"], ""))


def test_nginx_exposes_the_same_headers() -> None:
    template = (ROOT / "nginx/templates/http/cors.conf.template").read_text()
    assert f'"{EXPOSED.decode()}"' in template
