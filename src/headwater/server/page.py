"""The page at `/`: plain files, and what they ask that no other client does.

The page runs nothing that did not come from here, talks to nobody else, and is shown in nobody's
frame: it holds a key.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from headwater.server.answer import json_response
from headwater.server.caller import key_of
from headwater.server.service import service_of

router = APIRouter()

FILES = Path(__file__).parent / "pages"

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cache-control": "no-cache",  # asked again each time: a new server brings its own page
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@router.get("/v1/caller", summary="Who the server takes you for")
async def caller(request: Request) -> Response:
    """Never an error: `tenant` is null for a key that is nobody's, and without one where one is
    needed. `open` says that no key is needed."""
    service = service_of(request)
    tenant = service.tenants.of(key_of(request))
    return json_response(
        {
            "tenant": None if tenant is None else tenant.name,
            "admin": tenant is not None and tenant.admin,
            "open": service.tenants.is_open,
            "has_admin": service.has_admin,
        }
    )


class Page(StaticFiles):
    """The files, with headers that hold a browser to the promises above."""

    def __init__(self) -> None:
        super().__init__(directory=FILES, html=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                pairs = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *pairs]
            await send(message)

        await super().__call__(scope, receive, with_headers)
