"""What all handlers share: the engine, who may ask it, and the way of a request through it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple, cast

from fastapi import Request

from headwater.engine.api import Headwater
from headwater.engine.asked import Prompt
from headwater.engine.generation import AsyncGeneration
from headwater.engine.results import End, Piece, Result, Timing
from headwater.errors import Cancelled, HeadwaterError
from headwater.observe.explain import Report
from headwater.server.config import ServerConfig
from headwater.server.conversations import Conversations
from headwater.server.desk import Desk, Seat
from headwater.server.errors import ApiError, error_of
from headwater.server.recorder import Ended, Recorder
from headwater.server.tenants import Tenant, Tenants


class Service:
    """One engine behind HTTP. Belongs to the event loop it serves in."""

    def __init__(self, hw: Headwater, config: ServerConfig, recorder: Recorder) -> None:
        self.hw = hw
        self.config = config
        self.tenants = Tenants(config.tenants)
        self.desk = Desk(config.max_waiting)
        self.recorder = recorder
        self.conversations = Conversations()
        self.model = config.served_name or hw.loaded.folder.name
        self.began = int(time.time())

    @property
    def has_admin(self) -> bool:
        return any(tenant.admin for tenant in self.tenants.all)

    @property
    def is_ready(self) -> bool:
        """Requests are let in and steps go on."""
        return self.why_not_ready is None

    @property
    def why_not_ready(self) -> str | None:
        """Why requests would not be answered; None when they are."""
        if self.desk.is_closed:
            return "The server is ending."
        if not self.hw.healthy:
            return "The engine has stopped."
        since = self.hw.progress.since
        if since is not None and time.monotonic() - since > self.config.stall:
            return f"A step has been running for more than {self.config.stall:.0f} s."
        return None

    async def tokens(self, prompt: Prompt, keywords: dict[str, Any]) -> bytes:
        """A prompt as packed token ids, made in a thread of its own. Raises ApiError."""
        try:
            return await asyncio.to_thread(self.hw.tokens, prompt, **keywords)
        except HeadwaterError as error:
            raise error_of(error) from error

    async def begin(
        self, tenant: Tenant, asked: Sequence[tuple[Prompt, dict[str, Any]]], deadline: float | None
    ) -> Running:
        """Let a request in and start it, one generation a prompt.

        Raises ApiError; nothing runs then.
        """
        seat = self.desk.enter(tenant)
        generations: list[AsyncGeneration] = []
        try:
            for prompt, keywords in asked:
                generations.append(await self.hw.asubmit(prompt, **keywords))
        except BaseException as error:
            for generation in generations:
                generation.cancel()
            seat.leave()
            if isinstance(error, HeadwaterError):
                raise error_of(error) from error
            raise
        limit = min(self.config.deadline, deadline or self.config.deadline)
        owner = Owner(tenant, asked[0][1].get("salt", ""))
        return Running(self, owner, seat, generations, limit)


class Running:
    """A request that was let in: its generations, its seat and its deadline."""

    def __init__(
        self,
        service: Service,
        owner: Owner,
        seat: Seat,
        generations: list[AsyncGeneration],
        limit: float,
    ) -> None:
        self.generations = generations
        self._recorder = service.recorder
        self._owner = owner
        self._seat = seat
        self._began = time.monotonic()
        self._is_late = False
        self._limit = limit
        self._timer = asyncio.get_running_loop().call_later(limit, self._late)

    async def results(self) -> list[Result]:
        """Wait for all. Raises ApiError. The request has left when this returns."""
        results: list[Result] = []
        try:
            for generation in self.generations:
                results.append(await generation.result())
                self._complete(generation, results[-1])
        except HeadwaterError as error:
            raise self._error(self.generations[len(results)], error) from error
        finally:
            self.leave()
        return results

    async def pieces(self) -> AsyncGenerator[list[tuple[int, Piece]], None]:
        """Pieces as they come, each with the number of its prompt. Raises ApiError."""
        try:
            async for index, batch in _merged(self.generations):
                if isinstance(batch, HeadwaterError):
                    raise self._error(self.generations[index], batch) from batch
                self._seat.served()
                if batch[-1].end is not None:
                    self._complete(self.generations[index], batch[-1].end)
                yield [(index, piece) for piece in batch]
        finally:
            self.leave()

    def leave(self) -> None:
        """End the request, whatever it has come to. Again does nothing."""
        self._timer.cancel()
        for generation in self.generations:
            generation.cancel()
        self._seat.leave()

    def _late(self) -> None:
        self._is_late = True
        for generation in self.generations:
            generation.cancel()

    def _complete(self, generation: AsyncGeneration, end: Result | End) -> None:
        self._record(generation, "complete", end.cache, end.timing)

    def _error(self, generation: AsyncGeneration, error: HeadwaterError) -> ApiError:
        if not isinstance(error, Cancelled):
            return error_of(error)
        if isinstance(error.report, Report):
            spent = time.monotonic() - self._began
            self._record(generation, "cut off", error.report, Timing(spent, spent))
        if not self._is_late:
            return error_of(error)
        message = f"The request did not finish within {self._limit:.0f} s."
        return ApiError(504, message, code="deadline")

    def _record(
        self, generation: AsyncGeneration, outcome: str, report: Report, timing: Timing
    ) -> None:
        owner = self._owner
        self._recorder.ended(
            Ended(
                owner.tenant.name,
                owner.tenant.sharing,
                owner.salt,
                generation.prompt,
                outcome,
                report,
                timing,
            )
        )


class Owner(NamedTuple):
    """Whose a request is, and under which salt its prompt is cached."""

    tenant: Tenant
    salt: str


Batch = list[Piece] | HeadwaterError


async def _merged(
    generations: Sequence[AsyncGeneration],
) -> AsyncGenerator[tuple[int, Batch], None]:
    """The batches of several generations as they come, or the error that ends one."""
    if len(generations) == 1:
        try:
            async for batch in generations[0].batches():
                yield 0, batch
        except HeadwaterError as error:
            yield 0, error
        return
    queue: asyncio.Queue[tuple[int, Batch | None]] = asyncio.Queue()

    async def read(index: int) -> None:
        try:
            async for batch in generations[index].batches():
                queue.put_nowait((index, batch))
            queue.put_nowait((index, None))
        except HeadwaterError as error:
            queue.put_nowait((index, error))

    tasks = [asyncio.create_task(read(index)) for index in range(len(generations))]
    try:
        left = len(tasks)
        while left:
            index, came = await queue.get()
            if came is None:
                left -= 1
            else:
                yield index, came
    finally:
        for task in tasks:
            task.cancel()


def service_of(request: Request) -> Service:
    return cast("Service", request.app.state.service)
