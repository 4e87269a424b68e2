"""The application: routes, errors in their API's shape, bounded bodies."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from headwater.server import admin, cache_api, health
from headwater.server.errors import ApiError, error_response
from headwater.server.limits import BodyLimit
from headwater.server.service import Service
from headwater.server.shapes import chat, completions, messages, responses

PAGES = Path(__file__).parent / "pages"

_MODULES = (chat, completions, responses, messages, cache_api, admin, health)


def create_app(service: Service) -> FastAPI:
    """The application around a service."""
    app = FastAPI(
        title="Headwater",
        version=version("headwater"),
        description="LLM inference with an exact prefix cache.",
    )
    app.state.service = service
    for module in _MODULES:
        app.include_router(module.router)
    app.mount("/", StaticFiles(directory=PAGES, html=True), name="pages")
    app.add_middleware(BodyLimit, most=service.config.body_bytes)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unknown)
    return app


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error, request.url.path)


async def _invalid(request: Request, error: Exception) -> Response:
    """One sentence about the first thing that is wrong, with the name of the field."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path"})
    if first["type"] == "json_invalid":
        return error_response(ApiError(400, "The body is no JSON."), request.url.path)
    message = f"{where}: {first['msg']}." if where else f"{first['msg']}."
    return error_response(ApiError(400, message, param=where or None), request.url.path)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(ApiError(error.status_code, f"{error.detail}."), request.url.path)


async def _unknown(request: Request, error: Exception) -> Response:
    """What nobody foresaw. The traceback is in the server's log, not in the answer."""
    return error_response(ApiError(500, "The server failed on this request."), request.url.path)
