"""The two ways to answer a request: whole, or piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response

from headwater.engine.results import Piece, Result
from headwater.server.errors import ApiError, event_of
from headwater.server.running import Batch, Running
from headwater.server.sse import EventStream, event, gone

Answer = TypeVar("Answer")


class ClientGone(Exception):
    """Whoever asked has gone away; nobody reads the answer."""


class Shape(Protocol):
    """How an API writes an answer, of one request to it."""

    def whole(self, results: Sequence[Result]) -> dict[str, Any]:
        """The body of a complete answer, from one result a prompt."""

    def opening(self) -> Iterable[bytes]:
        """Events before the first piece."""

    def events(self, prompt: int, piece: Piece) -> Iterable[bytes]:
        """Events for a piece of a prompt's answer."""

    def closing(self) -> Iterable[bytes]:
        """Events after the last piece."""


async def answer(
    request: Request, running: Running, shape: Shape, *, stream: bool | None
) -> Response:
    """Raises ApiError, and ClientGone when nobody waits for the answer any more."""
    if stream:
        return await _in_pieces(request, running, shape)
    results = await results_of(request, running)
    return json_response(shape.whole(results))


async def results_of(request: Request, running: Running) -> list[Result]:
    """Wait for the end. Raises ApiError and ClientGone."""
    try:
        return await _unless_gone(request, running.results())
    finally:
        running.leave()


async def _in_pieces(request: Request, running: Running, shape: Shape) -> Response:
    """An error before the first piece is a status of its own; a later one is an event, the last of
    the stream."""
    pieces = running.pieces()
    try:
        first = await _unless_gone(request, anext(pieces))
    except BaseException:
        running.leave()
        raise
    return EventStream(_stream(first, pieces, shape, request.scope["path"]), running.leave)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What the work gives. Raises what it raises, and ClientGone when the client goes before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _stream(
    first: Batch, pieces: AsyncGenerator[Batch, None], shape: Shape, path: str
) -> AsyncGenerator[bytes, None]:
    try:
        yield b"".join([*shape.opening(), *_events(shape, first)])
        async for batch in pieces:
            yield b"".join(_events(shape, batch))
        yield b"".join(shape.closing())
    except ApiError as error:
        name, data = event_of(error, path)
        yield event(data, name)
    finally:
        await pieces.aclose()


def _events(shape: Shape, batch: Batch) -> Iterable[bytes]:
    for piece in batch.pieces:
        yield from shape.events(batch.prompt, piece)


def json_response(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
