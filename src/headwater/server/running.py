"""A request that was let in: its generations, heard to their ends, its seat and its deadline.

Whoever wants the answer may go away, or be too late, at any time; the engine is still heard until
it has let go of the last generation, so that what it did is counted:

    engine ── batches ──> a task for each generation ──> queue ──> pieces() or results()
                                    |                      ^
                                    v                      └── fail(): the deadline, the end
                                 recorder
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from headwater.engine.generation import AsyncGeneration
from headwater.engine.results import Piece, Result, Timing
from headwater.errors import Cancelled, HeadwaterError
from headwater.observe.explain import Report
from headwater.server.desk import Seat
from headwater.server.errors import ApiError, error_of
from headwater.server.recorder import Ended, Recorder


class Batch(NamedTuple):
    """Pieces of a prompt's answers; none when there are no more."""

    prompt: int
    pieces: list[Piece]


class Deadline(NamedTuple):
    """Seconds from when its seat was taken, and the status of a request that takes longer."""

    seconds: float
    status: int

    @classmethod
    def of(cls, own: float | None, most: float) -> Deadline:
        """A request's own, or the server's, if that comes first. To be slower than it promised is
        the server's fault; to be slower than a client wished is not."""
        return cls(most, 504) if own is None or own >= most else cls(own, 408)


class Running:
    """For one event loop, and one reader."""

    def __init__(
        self, seat: Seat, recorder: Recorder, deadline: Deadline, ended: Callable[[Running], None]
    ) -> None:
        """ended: called when the engine has let go."""
        self.generations: list[AsyncGeneration] = []
        self._seat = seat
        self._recorder = recorder
        self._came: asyncio.Queue[Batch | ApiError] = asyncio.Queue()
        self._listeners: set[asyncio.Task[None]] = set()
        self._ended = ended
        self._has_left = False
        said = f"The request did not finish within {deadline.seconds:g} s."
        late = ApiError(deadline.status, said, code="deadline")
        left = seat.since + deadline.seconds - time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(left, self.fail, late)

    def listen(self, generation: AsyncGeneration, salt: str) -> None:
        """Hear one more generation, whose prompt is cached under the salt, to its end."""
        self.generations.append(generation)
        hear = self._hear(len(self.generations) - 1, generation, salt)
        task = asyncio.ensure_future(hear)
        self._listeners.add(task)
        task.add_done_callback(self._heard)

    async def results(self) -> list[Result]:
        """Wait for all. Raises ApiError. The request has left when this returns."""
        async for _ in self.pieces():
            pass
        return [await generation.result() for generation in self.generations]

    async def pieces(self) -> AsyncGenerator[Batch, None]:
        """Pieces as they come. Raises ApiError. The request has left when there are no more."""
        open_prompts = len(self.generations)
        try:
            while open_prompts:
                came = await self._came.get()
                if isinstance(came, ApiError):
                    raise came
                if came.pieces:
                    yield came
                else:
                    open_prompts -= 1
        finally:
            self.leave()

    def fail(self, error: ApiError) -> None:
        """End the request with an error, now: the engine may be busy with a long step."""
        self._came.put_nowait(error)
        self._cancel()

    def leave(self) -> None:
        """End the request, whatever it has come to. Again does nothing."""
        self._has_left = True
        self._timer.cancel()
        self._seat.leave()
        self._cancel()
        self._end_when_heard()

    def _cancel(self) -> None:
        for generation in self.generations:
            generation.cancel()

    def _heard(self, task: asyncio.Task[None]) -> None:
        self._listeners.discard(task)
        self._end_when_heard()

    def _end_when_heard(self) -> None:
        if self._has_left and not self._listeners:
            self._ended(self)

    async def _hear(self, prompt: int, generation: AsyncGeneration, salt: str) -> None:
        try:
            async for pieces in generation.batches():
                self._seat.served()
                self._came.put_nowait(Batch(prompt, pieces))
            result = await generation.result()
            self._record(generation.prompt, salt, "complete", result)
            self._came.put_nowait(Batch(prompt, []))
        except HeadwaterError as error:
            if isinstance(error, Cancelled) and isinstance(error.report, Report):
                spent = time.monotonic() - self._seat.since
                cut = CutOff(error.report, Timing(spent, spent))
                self._record(generation.prompt, salt, "cut off", cut)
            self._came.put_nowait(error_of(error))

    def _record(self, prompt: bytes, salt: str, outcome: str, came: Result | CutOff) -> None:
        tenant = self._seat.tenant
        ended = Ended(tenant.name, tenant.sharing, salt, prompt, outcome, came.cache, came.timing)
        self._recorder.ended(ended)


class CutOff(NamedTuple):
    """What is known of a generation that was cancelled."""

    cache: Report
    timing: Timing
