"""The caller's end of a request: a handle to wait on, to iterate over, to cancel.

Two kinds with the same verbs, one for threads and one for asyncio. Leaving a loop over the pieces
early cancels the request, and so does dropping the handle: who does not listen any more wants
nothing computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX

from headwater.engine.mailbox import Mailbox
from headwater.engine.results import Assembly, Piece, Result
from headwater.errors import HeadwaterError

Delivered = Piece | HeadwaterError


class Handle:
    """What both kinds share: the pieces so far, and how the request ended."""

    _cancel: Callable[[], None] | None = None

    def __init__(self, prompt: bytes, choices: int, cancel: Callable[[], None]) -> None:
        """prompt: its token ids, packed. cancel: tells the engine; harmless when the request has
        ended."""
        self.prompt = prompt
        self._assembly = Assembly(choices)
        self._error: HeadwaterError | None = None
        self._cancel = cancel  # last: an interrupt before it leaves nothing to cancel

    @property
    def is_done(self) -> bool:
        """All that will come was received."""
        return self._error is not None or self._assembly.is_complete

    def cancel(self) -> None:
        """End the request within one step. KV that is computed stays cached."""
        if self._cancel is not None and not self.is_done:
            self._cancel()

    def __del__(self) -> None:
        self.cancel()

    def _received(self, delivered: Delivered) -> Piece:
        if isinstance(delivered, HeadwaterError):
            self._error = delivered
            raise delivered
        self._assembly.add(delivered)
        return delivered

    def _ended(self) -> Result:
        if self._error is not None:
            raise self._error
        return self._assembly.result()


class Generation(Handle):
    """A request as a thread sees it. Not to be shared between threads, but for `cancel`."""

    def __init__(self, prompt: bytes, choices: int, cancel: Callable[[], None]) -> None:
        super().__init__(prompt, choices, cancel)
        self._queue: SimpleQueue[Delivered] = SimpleQueue()
        self.deliver = self._queue.put

    def __iter__(self) -> Iterator[Piece]:
        """The pieces that were not taken yet, as they come."""
        try:
            while not self.is_done:
                yield self._received(self._queue.get())
        finally:
            self.cancel()

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the end.

        Raises what ended the request early (BadRequest, Cancelled, EngineStopped), or TimeoutError
        when no piece comes for `timeout` seconds (at once, when these are none or no number); the
        request goes on then.
        """
        patience = _patience(timeout)
        while not self.is_done:
            try:
                self._received(self._queue.get(timeout=patience))
            except Empty:
                raise TimeoutError(f"no token came for {timeout} seconds") from None
        return self._ended()


def _patience(timeout: float | None) -> float | None:
    """A timeout as queues take it: not negative, NaN or beyond what the system counts to."""
    if timeout is None or timeout >= TIMEOUT_MAX:
        return None
    return timeout if timeout > 0 else 0.0


class AsyncGeneration(Handle):
    """A request as a coroutine sees it; belongs to the event loop it was made in."""

    def __init__(
        self, prompt: bytes, choices: int, cancel: Callable[[], None], mailbox: Mailbox
    ) -> None:
        """mailbox: that of the running event loop."""
        super().__init__(prompt, choices, cancel)
        self._queue: asyncio.Queue[Delivered] = asyncio.Queue()
        # Not a method: the engine holds on to it, and must not keep a dropped handle alive.
        self.deliver = mailbox.into(self._queue, cancel)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        """The pieces that were not taken yet, as they come."""
        try:
            while not self.is_done:
                yield self._received(await self._queue.get())
        finally:
            self.cancel()

    async def batches(self) -> AsyncIterator[list[Piece]]:
        """The pieces as they come, those that are here already together."""
        try:
            while not self.is_done:
                pieces = [self._received(await self._queue.get())]
                while not self.is_done and not self._queue.empty():
                    pieces.append(self._received(self._queue.get_nowait()))
                yield pieces
        finally:
            self.cancel()

    async def result(self) -> Result:
        """Wait for the end; a task that is cancelled while it waits cancels the request."""
        try:
            while not self.is_done:
                self._received(await self._queue.get())
        finally:
            self.cancel()
        return self._ended()
