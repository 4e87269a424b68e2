"""Connections that do not wait for ever: not for a head that does not end, nor for a reader who
does not read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 256 * 2**10
"""Bytes of a request before its body: its line and its headers."""


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, for clients that may be slow or ill-meaning.

    A request that has begun must go on, and what was sent must be read, within `patience` seconds;
    the connection is cut otherwise, which ends whatever was computed for it. Closing it would not
    do: that waits until the rest is read.
    """

    def __init__(self, *args: Any, patience: float, **named: Any) -> None:
        super().__init__(*args, **named)
        self._patience = patience
        self._head = 0
        self._is_in_head = True
        self._hearing: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._hear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_hearing()
        self._stop_sending()
        super().connection_lost(exc)

    # What comes

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._hearing is not None:
            self._hear()
        if self._is_in_head:
            self._head += len(data)
            if self._head > LONGEST_HEAD and not self.transport.is_closing():
                self.send_400_response("The request's line and headers are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        self._is_in_head = True
        self._hear()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_hearing()
        super().on_message_complete()

    def _hear(self) -> None:
        """What is to come of the request must begin to come by then."""
        self._stop_hearing()
        self._hearing = self.loop.call_later(self._patience, self._unheard)

    def _stop_hearing(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None

    def _unheard(self) -> None:
        if self.pipeline:  # we are not reading: it is not its turn yet
            self._hear()
        else:
            self.transport.abort()

    # What goes

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending = self.loop.call_later(self._patience, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_sending()
        super().resume_writing()

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(self._patience, self.transport.abort)  # if the rest is not read
