"""The two ways to answer a request: whole, or piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Protocol

import msgspec
from fastapi import Request
from starlette.responses import Response

from headwater.engine.results import Piece, Result
from headwater.server.errors import ApiError, body_of, error_response
from headwater.server.service import Running
from headwater.server.sse import EventStream, event, gone


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


async def answer_whole(request: Request, running: Running, shape: Shape) -> Response:
    """Wait for the end; a client that goes away ends it within one step. Raises ApiError."""
    work = asyncio.ensure_future(running.results())
    leaving = asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return Response(status_code=499)  # nobody reads it
        return json_response(shape.whole(work.result()))
    finally:
        running.leave()
        leaving.cancel()
        work.cancel()
        await asyncio.gather(work, leaving, return_exceptions=True)


async def answer_stream(
    request: Request, running: Running, shape: Shape, patience: float
) -> Response:
    """Send pieces as they come. An error before the first one is a status of its own; a later one
    is an event, the last of the stream. Raises ApiError."""
    pieces = running.pieces()
    first = asyncio.ensure_future(anext(pieces))
    leaving = asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait({first, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            running.leave()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            return Response(status_code=499)
        batch = first.result()
    except BaseException:
        running.leave()
        raise
    finally:
        if not leaving.done():
            leaving.cancel()
    path = request.url.path
    return EventStream(_stream(batch, pieces, shape, path), running.leave, patience)


async def _stream(
    batch: list[tuple[int, Piece]],
    pieces: AsyncGenerator[list[tuple[int, Piece]], None],
    shape: Shape,
    path: str,
) -> AsyncGenerator[bytes, None]:
    try:
        yield b"".join([*shape.opening(), *_events(shape, batch)])
        async for more in pieces:
            yield b"".join(_events(shape, more))
        yield b"".join(shape.closing())
    except ApiError as error:
        body = body_of(error, path)
        yield event(body, "error" if body.get("type") == "error" else None)
    finally:
        await pieces.aclose()


def _events(shape: Shape, batch: list[tuple[int, Piece]]) -> Iterable[bytes]:
    for prompt, piece in batch:
        yield from shape.events(prompt, piece)


def json_response(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


__all__ = ["Shape", "answer_stream", "answer_whole", "error_response", "json_response"]
