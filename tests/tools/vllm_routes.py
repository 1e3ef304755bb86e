"""Every route that a version of vLLM can register, read from its source without running it.

    python tests/tools/vllm_routes.py vllm-0.33.0-….whl > tests/data/vllm_routes/0.33.0.json

Takes a wheel or an installed `vllm` folder. Whether a route is really there depends on the model,
on flags and on the environment; here are all that some configuration has. `unread` lists calls
that register something under a path that is not written out: a person has to look at them.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "vllm/entrypoints/"
METHODS = {"get", "post", "put", "delete", "patch", "head", "options", "trace"}
REGISTERING = {"api_route", "route", "add_api_route", "add_route", "mount", "Mount", "Route"}
# What FastAPI adds by itself to an application with documentation pages.
FASTAPI = ("/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc")
# What `sagemaker_standards.bootstrap(app)` adds, of another package
# (model-hosting-container-standards, sagemaker/lora/routes.py).
SAGEMAKER = {("POST", "/adapters"), ("DELETE", "/adapters/{adapter_name}")}

Routes = set[tuple[str, str]]


def sources(place: Path) -> Iterator[tuple[str, str]]:
    """(path below site-packages, text) of every source file of the HTTP servers."""
    if place.suffix == ".whl":
        with zipfile.ZipFile(place) as wheel:
            for name in sorted(wheel.namelist()):
                if name.startswith(PACKAGE) and name.endswith(".py"):
                    yield name, wheel.read(name).decode()
    else:
        for path in sorted((place / "entrypoints").rglob("*.py")):
            yield str(path.relative_to(place.parent)), path.read_text()


def literal(node: ast.expr | None) -> object:
    """The value of a literal, None for anything else."""
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None


def called(call: ast.Call) -> str:
    """The last name of what is called: `post` of `router.post(...)`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def owner(call: ast.Call) -> str:
    """The name before the dot: `router` of `router.post(...)`."""
    value = call.func.value if isinstance(call.func, ast.Attribute) else None
    last = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return str(last)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    return keyword(call, name) or (call.args[position] if len(call.args) > position else None)


def routes_of(call: ast.Call, prefixes: dict[str, str]) -> Routes | None:
    """What one call registers; None when it registers something that cannot be read."""
    name, whose = called(call), owner(call)
    if name == "FastAPI":
        return {("GET", path) for path in FASTAPI}
    if name == "expose":  # the Prometheus instrumentator's
        return {("GET", "/metrics")}
    if (whose, name) == ("sagemaker_standards", "bootstrap"):
        return SAGEMAKER
    is_router = whose in prefixes or "router" in whose or whose == "app"
    methods = {name.upper()} if name in METHODS and is_router else set()
    if name == "websocket" and is_router:
        methods = {"WEBSOCKET"}
    elif name in REGISTERING and (is_router or not whose):
        given = literal(argument(call, 2, "methods")) or ["ANY" if "ount" in name else "GET"]
        methods = {str(each).upper() for each in given} if isinstance(given, list) else set()
    if not methods:
        return set()
    path = literal(argument(call, 0, "path"))
    if not isinstance(path, str):
        return None
    return {(method, prefixes.get(whose, "") + path) for method in methods}


def prefixes_of(tree: ast.Module) -> dict[str, str]:
    """The prefix of every router that is made here, by the name it got."""
    found: dict[str, str] = {}
    for made in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        call = made.value
        if isinstance(call, ast.Call) and called(call) in {"APIRouter", "FastAPI"}:
            names = [each.id for each in made.targets if isinstance(each, ast.Name)]
            found |= dict.fromkeys(names, str(literal(keyword(call, "prefix")) or ""))
    return found


def read(place: Path) -> dict[str, list[str]]:
    """`routes` as "METHOD /path" and `unread` as "file: source of the call", sorted."""
    routes: Routes = set()
    unread: set[str] = set()
    for name, text in sources(place):
        tree = ast.parse(text)
        prefixes = prefixes_of(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            found = routes_of(call, prefixes)
            prefixed = called(call) == "include_router" and keyword(call, "prefix")
            if found is None or prefixed:
                source = " ".join(ast.unparse(call).split())
                unread.add(f"{name.removeprefix(PACKAGE)}: {source[:120]}")
            routes |= found or set()
    return {"routes": sorted(" ".join(each) for each in routes), "unread": sorted(unread)}


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1])), indent=1))  # noqa: T201 - the command's output
