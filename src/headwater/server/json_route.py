"""Routes that read bodies strictly: JSON as its standard has it, and only of who may ask."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from headwater.server.answer import ClientGone
from headwater.server.caller import caller_of
from headwater.server.errors import ApiError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class JsonRoute(APIRoute):
    """Python's own reader takes NaN and halves of surrogate pairs, which nothing behind it can
    write again."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def checked(request: Request) -> Response:
            caller_of(request)  # before megabytes of a stranger are read
            strict = _StrictRequest(request.scope, request.receive)
            await strict.json()
            return await handle(strict)

        return checked


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Raises ApiError, 400 or 415, and ClientGone."""
        if not hasattr(self, "_read"):
            self._read = _decoded(self.headers.get("content-type", ""), await self._bytes())
        return self._read

    async def _bytes(self) -> bytes:
        try:
            return await self.body()
        except ClientDisconnect as error:
            raise ClientGone from error


def _decoded(kind: str, body: bytes) -> Any:
    # Any other type a page of another site could send without being asked (CORS).
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "Send JSON, with the header Content-Type: application/json.")
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"The body is no JSON: {error}.") from error
