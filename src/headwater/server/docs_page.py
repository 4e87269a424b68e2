"""`/docs`: what can be asked, as one page without scripts, written from the API's schema.

FastAPI's own page loads its scripts from another host; this one shows the same and asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, Response

router = APIRouter()

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; font: 600 1rem ui-monospace, monospace }
h2 b { display: inline-block; min-width: 4.5rem }
table { border-collapse: collapse; width: 100% }
td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top }
td:first-child, td:nth-child(2) { font: .9em/1.6 ui-monospace, monospace; white-space: nowrap }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    page = "\n".join(_page(request.app.openapi()))
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The schema of an application's API. Made once, since it takes a while."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        for _, _, operation in _operations(schema):
            # What is wrong with a request is told in the shape of its API, not in FastAPI's.
            if operation["responses"].pop("422", None):
                operation["responses"]["4XX"] = {"description": "An error, in one sentence."}
        for name in ("HTTPValidationError", "ValidationError"):
            schema.get("components", {}).get("schemas", {}).pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _page(schema: dict[str, Any]) -> Iterator[str]:
    title = escape(schema["info"]["title"])
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: API</title>'
    yield f"<style>{_STYLE}</style><h1>{title} {escape(schema['info']['version'])}</h1>"
    yield f"<p>{escape(schema['info']['description'])} The same for programs: "
    yield '<a href="/openapi.json">/openapi.json</a>.</p>'
    for path, method, operation in _operations(schema):
        yield f"<h2><b>{method.upper()}</b> {escape(path)}</h2>"
        yield f"<p>{escape(operation.get('summary', ''))}.</p>"
        if "description" in operation:
            yield f"<p>{escape(operation['description'])}</p>"
        yield from _table(_fields(schema, operation))


def _table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    if rows:
        yield "<table><tr><th>field<th>type<th></tr>"
        for row in rows:
            yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) + "</tr>"
        yield "</table>"


def _fields(schema: dict[str, Any], operation: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, type and meaning of what an operation takes, in its path, its query and its body."""
    rows = [
        (each["name"], _type(each["schema"]), f"in the {each['in']}")
        for each in operation.get("parameters", ())
    ]
    if "requestBody" in operation:
        body = _found(schema, operation["requestBody"]["content"]["application/json"]["schema"])
        needed = body.get("required", ())
        rows += [
            (name, _type(each), _meaning(each, needed=name in needed))
            for name, each in body.get("properties", {}).items()
        ]
    return rows


def _found(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        part = schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    return part


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        return str(part["$ref"].rpartition("/")[2])
    if "anyOf" in part:
        return " | ".join(_type(each) for each in part["anyOf"] if each.get("type") != "null")
    if part.get("type") == "array":
        return f"[{_type(part.get('items', {}))}]"
    if "enum" in part:
        return " | ".join(map(str, part["enum"]))
    return str(part.get("type", "any"))


def _meaning(part: dict[str, Any], *, needed: bool) -> str:
    said = [part["description"]] if "description" in part else []
    if needed:
        said.insert(0, "Required.")
    elif part.get("default") is not None:
        said.append(f"Default {part['default']!r}.")
    return " ".join(said)
