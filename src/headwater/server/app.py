"""The application: routes, errors in their API's shape, bounded bodies."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.errors import HeadwaterError
from headwater.server import admin, cache_api, docs_page, health, page
from headwater.server.answer import ClientGone
from headwater.server.errors import ApiError, error_of, error_response
from headwater.server.limits import BodyLimit
from headwater.server.service import Service
from headwater.server.shapes import chat, completions, messages, responses

_MODULES = (chat, completions, responses, messages, cache_api, admin, health, page, docs_page)


def create_app(service: Service) -> FastAPI:
    """The application around a service."""
    app = FastAPI(
        title="Headwater",
        version=version("headwater"),
        description="LLM inference with an exact prefix cache.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    for module in _MODULES:
        app.include_router(module.router)
    # Not mounted at "/": a path that is known, but for another method, shall be a 405.
    app.router.default = _Rest(page.Page())
    app.openapi = partial(docs_page.openapi_of, app)  # type: ignore[method-assign]
    app.add_middleware(BodyLimit, most=service.config.body_bytes)
    for kind, told in (
        (ApiError, _api_error),
        (HeadwaterError, _headwater_error),
        (RequestValidationError, _invalid),
        (HTTPException, _http_error),
        (RecursionError, _too_deep),
        (ClientGone, _client_gone),
        (Exception, _unknown),
    ):
        app.add_exception_handler(kind, told)
    return app


class _Rest:
    """Paths that no route takes: files of the page, or nothing."""

    def __init__(self, files: ASGIApp) -> None:
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises HTTPException, 404."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            raise HTTPException(404)
        await self._files(scope, receive, send)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error, request.scope["path"])


async def _headwater_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadwaterError)
    return error_response(error_of(error), request.scope["path"])


async def _invalid(request: Request, error: Exception) -> Response:
    """One sentence about the first thing that is wrong, with the name of the field."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"][1:]]
    # Behind a field that may be of several types comes the name of the type that was tried.
    where = ".".join(part for part in parts if part not in _TYPES and "[" not in part)
    said = f"{where}: {first['msg']}." if where else f"{first['msg']}."
    return error_response(
        ApiError(400, said, param=parts[0] if parts else None), request.scope["path"]
    )


_TYPES = {"str", "int", "float", "bool"}


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    said = f"{request.method} {path!r:.200} is not served here: {error.detail}."
    return error_response(ApiError(error.status_code, said, headers=error.headers), path)


async def _too_deep(request: Request, error: Exception) -> Response:
    said = "The body is nested too deeply."
    return error_response(ApiError(400, said), request.scope["path"])


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _unknown(request: Request, error: Exception) -> Response:
    """What nobody foresaw. The traceback is in the server's log, not in the answer."""
    said = "The server failed on this request."
    return error_response(ApiError(500, said), request.scope["path"])
